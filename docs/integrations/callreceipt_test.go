package integrations_test

import (
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// pack returns the bytes of a message with the name of its type: as a receipt, and to compare it.
func pack(message any) ([]byte, error) {
	var packed anypb.Any
	if err := anypb.MarshalFrom(&packed, message.(proto.Message), proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, err
	}
	return proto.Marshal(&packed)
}

var errNoResponse = errors.New("the handler failed after lock.Commit")

func unpack(receipt []byte) (proto.Message, error) {
	if len(receipt) == 0 {
		return nil, errNoResponse
	}
	var packed anypb.Any
	if err := proto.Unmarshal(receipt, &packed); err != nil {
		return nil, err
	}
	return packed.UnmarshalNew()
}
