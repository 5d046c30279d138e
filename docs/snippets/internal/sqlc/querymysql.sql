-- name: InsertOrder :exec
INSERT INTO orders (run) VALUES (?);
