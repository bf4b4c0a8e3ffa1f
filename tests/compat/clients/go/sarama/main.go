// sarama with its default protocol version (see ../../README.md).
package main

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var scenarios = map[string]func(){
	"produce": produce, "consume": consume, "member": consume,
	"times": times, "admin": admin, "transact": transact,
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	if arguments["isolation"] == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	if _, ok := arguments["ca"]; ok {
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = tlsConfig()
	}
	if mechanism, ok := arguments["mechanism"]; ok {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = arguments["user"], arguments["password"]
		config.Net.SASL.TokenProvider = tokenFile{}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{} }
	}
	return config
}

type tokenFile struct{}

func (tokenFile) Token() (*sarama.AccessToken, error) { return &sarama.AccessToken{Token: token()}, nil }

// scramClient does what sarama leaves to its users.
type scramClient struct{ *scram.ClientConversation }

func (client *scramClient) Begin(user, password, authorization string) error {
	hash := scram.SHA256
	if arguments["mechanism"] == "SCRAM-SHA-512" {
		hash = scram.SHA512
	}
	made, err := hash.NewClient(user, password, authorization)
	if err == nil {
		client.ClientConversation = made.NewConversation()
	}
	return err
}

func brokers() []string { return []string{arguments["bootstrap"]} }

func produce() {
	config := settings()
	check(config.Producer.Compression.UnmarshalText([]byte(codec())))
	producer, err := sarama.NewSyncProducer(brokers(), config)
	check(err)
	var messages []*sarama.ProducerMessage
	for i := 0; i < number("count", 1); i++ {
		partition, stamp, key, value, header := produced(i)
		messages = append(messages, &sarama.ProducerMessage{
			Topic: arguments["topic"], Partition: int32(partition), Timestamp: stamp,
			Key: sarama.ByteEncoder(key), Value: sarama.ByteEncoder(value),
			Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: header}},
		})
	}
	err = producer.SendMessages(messages)
	if failed, several := err.(sarama.ProducerErrors); several {
		err = failed[0].Err
	}
	check(err)
	check(producer.Close())
	emit(map[string]any{"acked": len(messages)})
}

type handler struct {
	lock    sync.Mutex
	records []record
	enough  chan struct{}
	once    sync.Once
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	held := append([]int32{}, session.Claims()[arguments["topic"]]...)
	sort.Slice(held, func(i, j int) bool { return held[i] < held[j] })
	emit(map[string]any{"assigned": held})
	return nil
}

func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.take(session, message)
		case <-session.Context().Done():
			return nil
		}
	}
}

func (h *handler) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) {
	h.lock.Lock()
	defer h.lock.Unlock()
	_, endless := arguments["stop"]
	if !endless && len(h.records) >= number("count", 0) {
		return
	}
	h.records = append(h.records, record{
		message.Partition, message.Offset, message.Timestamp.UnixMilli(), text(message.Key), text(message.Value),
	})
	session.MarkMessage(message, "")
	if !endless && len(h.records) >= number("count", 0) {
		h.once.Do(func() { close(h.enough) })
	}
}

func (h *handler) seen() int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return len(h.records)
}

func consume() {
	group, err := sarama.NewConsumerGroup(brokers(), arguments["group"], settings())
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	h := &handler{records: []record{}, enough: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			check(group.Consume(ctx, []string{arguments["topic"]}, h))
		}
	}()
	for wantsMore(h.seen()) {
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	<-ended
	check(group.Close())
	emit(map[string]any{"records": h.records})
}

func times() {
	client, err := sarama.NewClient(brokers(), settings())
	check(err)
	found := map[int64]map[int32]any{}
	for _, stamp := range timestamps() {
		found[stamp] = map[int32]any{}
		for partition := int32(0); partition < int32(number("partitions", 1)); partition++ {
			offset, err := client.GetOffset(arguments["topic"], partition, stamp)
			check(err)
			found[stamp][partition] = offset
			if offset < 0 {
				found[stamp][partition] = nil
			}
		}
	}
	emit(map[string]any{"found": found})
}

func admin() {
	client, err := sarama.NewClusterAdmin(brokers(), settings())
	check(err)
	topic, retention := arguments["topic"], "3600000"
	detail := &sarama.TopicDetail{
		NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	check(client.CreateTopic(topic, detail, false))
	described, err := client.DescribeTopics([]string{topic})
	check(err)
	entries, err := client.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	check(err)
	value := ""
	for _, entry := range entries {
		if entry.Name == "retention.ms" {
			value = entry.Value
		}
	}
	check(client.DeleteTopic(topic))
	gone := false
	for i := 0; i < 50 && !gone; i++ {
		listed, err := client.ListTopics()
		check(err)
		_, there := listed[topic]
		gone = !there
		time.Sleep(50 * time.Millisecond)
	}
	emit(map[string]any{"partitions": len(described[0].Partitions), "config": value, "deleted": gone})
}

func transact() {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = arguments["id"]
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers(), config)
	check(err)
	transactions(
		func() { check(producer.BeginTxn()) },
		func(partition int, value string) {
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{
				Topic: arguments["topic"], Partition: int32(partition), Value: sarama.StringEncoder(value),
			})
			check(err)
		},
		func(commit bool) {
			if commit {
				check(producer.CommitTxn())
			} else {
				check(producer.AbortTxn())
			}
		},
	)
	check(producer.Close())
}
