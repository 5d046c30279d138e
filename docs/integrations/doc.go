// Package integrations holds the code of docs/queues.md, docs/grpc.md, docs/graphql.md, docs/agents.md and the queues of
// docs/jobs.md, and runs it with the real libraries: asynq, River, watermill, franz-go, Connect, gRPC, graphql-go,
// and the SDKs of MCP and A2A. It is a separate module: users of httplatch get none of these with it.
package integrations
