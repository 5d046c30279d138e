// Package integrations holds the code of docs/queues.md, docs/grpc.md, docs/graphql.md and the queues of docs/jobs.md,
// and runs it with the real libraries: asynq, River, watermill, franz-go, Connect, gRPC and
// graphql-go. It is a separate module: users of httplatch get none of these with it.
package integrations
