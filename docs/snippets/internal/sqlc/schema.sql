CREATE TABLE orders (run int NOT NULL, beside boolean NOT NULL DEFAULT false);
