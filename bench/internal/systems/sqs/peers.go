package sqs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/process"
)

// The versions that tools/peers installs; neither server tells.
const (
	goawsVersion     = "0.4.5"
	elasticmqVersion = "1.7.1"
)

// Peers are goaws, and ElasticMQ in memory and with its storage of messages.
func Peers() []peer.Peer {
	return []peer.Peer{
		{Name: "goaws", Title: "goaws", Durability: "none: memory", Notes: notes(), Start: startGoaws},
		{Name: "elasticmq", Title: "ElasticMQ, default", Durability: "none: memory", Notes: notes(), Start: elasticmq(false)},
		{
			Name: "elasticmq-h2", Title: "ElasticMQ, messages-storage", Durability: "a file of H2, written behind the acknowledgement",
			Notes: notes(), Start: elasticmq(true),
		},
	}
}

func startGoaws(ctx context.Context, o peer.StartOptions) (peer.Server, error) {
	ports, err := process.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(o.Dir, "goaws.yaml")
	text := fmt.Sprintf("Bench:\n  Host: 127.0.0.1\n  Port: %d\n  Region: us-east-1\n  AccountId: \"000000000000\"\n", ports[0])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := process.Start(process.Options{Name: "goaws", Dir: o.Dir, Path: filepath.Join(o.Tools, "goaws"), Args: []string{"-config", config, "Bench"}})
	if err != nil {
		return nil, err
	}
	return serve(ctx, p, ports[0], goawsVersion, newQuery)
}

func elasticmq(stored bool) func(context.Context, peer.StartOptions) (peer.Server, error) {
	return func(ctx context.Context, o peer.StartOptions) (peer.Server, error) {
		ports, err := process.FreePorts(ctx, 1)
		if err != nil {
			return nil, err
		}
		config := filepath.Join(o.Dir, "elasticmq.conf")
		text := fmt.Sprintf(`include classpath("application.conf")
node-address { protocol = http, host = "127.0.0.1", port = %[1]d, context-path = "" }
rest-sqs { enabled = true, bind-port = %[1]d, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
messages-storage { enabled = %[2]t, uri = "jdbc:h2:%[3]s" }
`, ports[0], stored, filepath.Join(o.Dir, "messages"))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		p, err := process.Start(process.Options{
			Name: "elasticmq", Dir: o.Dir, Path: "java",
			Args: []string{"-Dconfig.file=" + config, "-cp", filepath.Join(o.Tools, "elasticmq", "*"), "org.elasticmq.server.Main"},
		})
		if err != nil {
			return nil, err
		}
		return serve(ctx, p, ports[0], elasticmqVersion, newSDK)
	}
}
