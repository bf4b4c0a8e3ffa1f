// segmentio/kafka-go (see ../../README.md). It has no transactions of its own making.
package main

import (
	"context"
	"sort"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

var scenarios = map[string]func(){
	"produce": produce, "consume": consume, "member": member, "times": times, "admin": admin,
}

func client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(arguments["bootstrap"]), Timeout: 20 * time.Second, Transport: transport()}
}

// transport and dialer say how to log in: the library has one for its writer, one for its readers.
func transport() *kafka.Transport {
	made := &kafka.Transport{SASL: login()}
	if _, ok := arguments["ca"]; ok {
		made.TLS = tlsConfig()
	}
	return made
}

func dialer() *kafka.Dialer {
	made := &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true, SASLMechanism: login()}
	if _, ok := arguments["ca"]; ok {
		made.TLS = tlsConfig()
	}
	return made
}

func login() sasl.Mechanism {
	user, password := arguments["user"], arguments["password"]
	switch arguments["mechanism"] {
	case "":
		return nil
	case "PLAIN":
		return plain.Mechanism{Username: user, Password: password}
	case "SCRAM-SHA-256":
		made, err := scram.Mechanism(scram.SHA256, user, password)
		check(err)
		return made
	default:
		made, err := scram.Mechanism(scram.SHA512, user, password)
		check(err)
		return made
	}
}

func produce() {
	codecs := map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	manual := kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
		return message.WriterData.(int)
	})
	writer := &kafka.Writer{
		Addr: kafka.TCP(arguments["bootstrap"]), Topic: arguments["topic"], Balancer: manual,
		Transport: transport(), RequiredAcks: kafka.RequireAll, Compression: codecs[codec()], BatchTimeout: 20 * time.Millisecond,
	}
	var messages []kafka.Message
	for i := 0; i < number("count", 1); i++ {
		partition, stamp, key, value, header := produced(i)
		messages = append(messages, kafka.Message{
			WriterData: partition, Time: stamp, Key: key, Value: value,
			Headers: []kafka.Header{{Key: "n", Value: header}},
		})
	}
	check(writer.WriteMessages(context.Background(), messages...))
	check(writer.Close())
	emit(map[string]any{"acked": len(messages)})
}

func consume() {
	isolation := kafka.ReadUncommitted
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{arguments["bootstrap"]}, GroupID: arguments["group"], Topic: arguments["topic"],
		StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond, IsolationLevel: isolation,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second, Dialer: dialer(),
	})
	records := []record{}
	var seen []kafka.Message
	for wantsMore(len(records)) {
		limited, cancel := context.WithTimeout(context.Background(), time.Second)
		message, err := reader.FetchMessage(limited)
		cancel()
		if err != nil {
			continue
		}
		seen = append(seen, message)
		records = append(records, record{
			message.Partition, message.Offset, message.Time.UnixMilli(), text(message.Key), text(message.Value),
		})
	}
	check(reader.CommitMessages(context.Background(), seen...))
	check(reader.Close())
	emit(map[string]any{"records": records})
}

// member uses the group API underneath the reader, which tells the assignment.
func member() {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: arguments["group"], Brokers: []string{arguments["bootstrap"]}, Topics: []string{arguments["topic"]},
		SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second, RebalanceTimeout: 6 * time.Second,
		StartOffset: kafka.FirstOffset, Dialer: dialer(),
	})
	check(err)
	go func() {
		for {
			generation, err := group.Next(context.Background())
			if err != nil {
				return
			}
			held := []int{}
			for _, assignment := range generation.Assignments[arguments["topic"]] {
				held = append(held, assignment.ID)
			}
			sort.Ints(held)
			emit(map[string]any{"assigned": held})
			generation.Start(func(ctx context.Context) { <-ctx.Done() })
		}
	}()
	for wantsMore(0) {
		time.Sleep(50 * time.Millisecond)
	}
	check(group.Close())
	emit(map[string]any{"records": []record{}})
}

func times() {
	found := map[int64]map[int]any{}
	for _, stamp := range timestamps() {
		asked := []kafka.OffsetRequest{}
		for partition := 0; partition < number("partitions", 1); partition++ {
			asked = append(asked, kafka.TimeOffsetOf(partition, time.UnixMilli(stamp)))
		}
		answer, err := client().ListOffsets(context.Background(), &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{arguments["topic"]: asked},
		})
		check(err)
		found[stamp] = map[int]any{}
		for _, partition := range answer.Topics[arguments["topic"]] {
			check(partition.Error)
			found[stamp][partition.Partition] = nil
			for offset := range partition.Offsets {
				if offset >= 0 {
					found[stamp][partition.Partition] = offset
				}
			}
		}
	}
	emit(map[string]any{"found": found})
}

func admin() {
	ctx, topic := context.Background(), arguments["topic"]
	created, err := client().CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: 3, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "3600000"}},
	}}})
	check(err)
	check(created.Errors[topic])
	described, err := client().Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	check(err)
	configs, err := client().DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	check(err)
	value := ""
	for _, entry := range configs.Resources[0].ConfigEntries {
		if entry.ConfigName == "retention.ms" {
			value = entry.ConfigValue
		}
	}
	deleted, err := client().DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	check(err)
	check(deleted.Errors[topic])
	gone := false
	// kafka-go keeps metadata for six seconds.
	for i := 0; i < 200 && !gone; i++ {
		listed, err := client().Metadata(ctx, &kafka.MetadataRequest{})
		check(err)
		gone = true
		for _, other := range listed.Topics {
			gone = gone && other.Name != topic
		}
		time.Sleep(50 * time.Millisecond)
	}
	emit(map[string]any{"partitions": len(described.Topics[0].Partitions), "config": value, "deleted": gone})
}
