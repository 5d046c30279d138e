// Package integrations holds the code of docs/queues.md, docs/grpc.md and the queues of docs/jobs.md, and runs it with
// the real libraries: asynq, River, watermill, franz-go, Connect and gRPC. It is a separate
// module: users of httplatch get none of these with it.
package integrations
