// Package integrations holds the code of docs/queues.md and docs/grpc.md, and runs it with
// the real libraries: asynq, watermill, franz-go, Connect and gRPC. It is a separate
// module: users of httplatch get none of these with it.
package integrations
