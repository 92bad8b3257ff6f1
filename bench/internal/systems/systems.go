// Package systems lists the peers that there are.
package systems

import (
	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/systems/kafka"
	"github.com/spillway-mq/spillway/bench/internal/systems/nats"
	"github.com/spillway-mq/spillway/bench/internal/systems/seaweedfs"
	"github.com/spillway-mq/spillway/bench/internal/systems/spillway"
	"github.com/spillway-mq/spillway/bench/internal/systems/sqs"
)

// processes is how many Spillway runs in beside the one.
const processes = 4

// All gives the peers, Spillway first.
func All() []peer.Peer {
	peers := []peer.Peer{spillway.Peer(1), spillway.Peer(processes)}
	peers = append(peers, nats.Peers()...)
	peers = append(peers, kafka.Peers()...)
	return append(append(peers, sqs.Peers()...), seaweedfs.Peer())
}
