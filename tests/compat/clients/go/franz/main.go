// franz-go (see ../../README.md).
package main

import (
	"context"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var scenarios = map[string]func(){
	"produce": produce, "consume": consume, "member": consume,
	"times": times, "admin": admin, "transact": transact,
	"late": late,
}

func client(options ...kgo.Opt) *kgo.Client {
	base := []kgo.Opt{
		kgo.SeedBrokers(arguments["bootstrap"]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	if _, ok := arguments["ca"]; ok {
		base = append(base, kgo.DialTLSConfig(tlsConfig()))
	}
	user, password := arguments["user"], arguments["password"]
	switch arguments["mechanism"] {
	case "PLAIN":
		base = append(base, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "OAUTHBEARER":
		base = append(base, kgo.SASL(oauth.Auth{Token: token()}.AsMechanism()))
	case "SCRAM-SHA-256":
		base = append(base, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		base = append(base, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	made, err := kgo.NewClient(append(base, options...)...)
	check(err)
	if _, ok := arguments["mechanism"]; ok {
		// A producer would try a wrong password for ever.
		check(made.Ping(context.Background()))
	}
	return made
}

func produce() {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	producer := client(kgo.ProducerBatchCompression(codecs[codec()]), kgo.ProducerLinger(20*time.Millisecond))
	defer producer.Close()
	acked := 0
	for i := 0; i < number("count", 1); i++ {
		partition, stamp, key, value, header := produced(i)
		producer.Produce(context.Background(), &kgo.Record{
			Topic: arguments["topic"], Partition: int32(partition), Timestamp: stamp, Key: key, Value: value,
			Headers: []kgo.RecordHeader{{Key: "n", Value: header}},
		}, func(_ *kgo.Record, err error) {
			check(err)
			acked++
		})
	}
	check(producer.Flush(context.Background()))
	emit(map[string]any{"acked": acked})
}

func consume() {
	isolation := kgo.ReadUncommitted()
	if arguments["isolation"] == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	report := func(held map[int32]bool) {
		list := []int32{}
		for partition := range held {
			list = append(list, partition)
		}
		sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
		emit(map[string]any{"assigned": list})
	}
	held := map[int32]bool{}
	gain := func(_ context.Context, _ *kgo.Client, gained map[string][]int32) {
		for _, partition := range gained[arguments["topic"]] {
			held[partition] = true
		}
		report(held)
	}
	lose := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		for _, partition := range lost[arguments["topic"]] {
			delete(held, partition)
		}
		report(held)
	}
	consumer := client(
		kgo.ConsumerGroup(arguments["group"]), kgo.ConsumeTopics(arguments["topic"]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second), kgo.FetchIsolationLevel(isolation),
		kgo.OnPartitionsAssigned(gain), kgo.OnPartitionsRevoked(lose), kgo.OnPartitionsLost(lose),
	)
	records := []record{}
	var seen []*kgo.Record
	for wantsMore(len(records)) {
		limited, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		most := 500
		if _, endless := arguments["stop"]; !endless {
			most = number("count", 0) - len(records)
		}
		fetched := consumer.PollRecords(limited, most)
		cancel()
		fetched.EachRecord(func(got *kgo.Record) {
			seen = append(seen, got)
			stamp := got.Timestamp.UnixMilli()
			records = append(records, record{got.Partition, got.Offset, stamp, text(got.Key), text(got.Value)})
		})
	}
	if _, endless := arguments["stop"]; !endless {
		check(consumer.CommitRecords(context.Background(), seen...))
	}
	consumer.Close()
	emit(map[string]any{"records": records})
}

func times() {
	admin := kadm.NewClient(client())
	found := map[int64]map[int32]any{}
	for _, stamp := range timestamps() {
		listed, err := admin.ListOffsetsAfterMilli(context.Background(), stamp, arguments["topic"])
		check(err)
		found[stamp] = map[int32]any{}
		listed.Each(func(answer kadm.ListedOffset) {
			check(answer.Err)
			// Where nothing is found franz-go answers the end offset, without a timestamp.
			if answer.Timestamp == -1 {
				found[stamp][answer.Partition] = nil
			} else {
				found[stamp][answer.Partition] = answer.Offset
			}
		})
	}
	emit(map[string]any{"found": found})
}

func admin() {
	admin := kadm.NewClient(client())
	ctx, topic := context.Background(), arguments["topic"]
	retention := "3600000"
	_, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &retention}, topic)
	check(err)
	described, err := admin.ListTopics(ctx, topic)
	check(err)
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	check(err)
	value := ""
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			value = *config.Value
		}
	}
	_, err = admin.DeleteTopic(ctx, topic)
	check(err)
	gone := false
	for i := 0; i < 50 && !gone; i++ {
		listed, err := admin.ListTopics(ctx)
		check(err)
		gone = !listed.Has(topic)
		time.Sleep(50 * time.Millisecond)
	}
	emit(map[string]any{"partitions": len(described[topic].Partitions), "config": value, "deleted": gone})
}

func transact() {
	producer := client(kgo.TransactionalID(arguments["id"]))
	ctx := context.Background()
	transactions(
		func() { check(producer.BeginTransaction()) },
		func(partition int, value string) {
			producer.Produce(ctx, &kgo.Record{
				Topic: arguments["topic"], Partition: int32(partition), Value: []byte(value),
			}, func(_ *kgo.Record, err error) { check(err) })
		},
		func(commit bool) {
			check(producer.Flush(ctx))
			check(producer.EndTransaction(ctx, kgo.TransactionEndTry(commit)))
		},
	)
	producer.Close()
}

func late() {
	ctx := context.Background()
	commits := kgo.TransactionEndTry(arguments["end"] == "commit")
	producer := lateProducer()
	check(producer.BeginTransaction())
	check(producer.ProduceSync(ctx, &kgo.Record{Topic: arguments["topic"], Value: []byte("late")}).FirstErr())
	emit(map[string]any{"written": true})
	for {
		if _, err := os.Stat(arguments["go"]); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	ended, survives := "done", true
	if err := producer.EndTransaction(ctx, commits); err != nil {
		ended, _, _ = strings.Cut(err.Error(), ":")
	}
	if writeNext(producer) != nil {
		survives = false
		producer.Close()
		producer = lateProducer()
		check(writeNext(producer))
	}
	producer.Close()
	emit(map[string]any{"ended": ended, "survives": survives})
}

func lateProducer() *kgo.Client {
	timeout := time.Duration(number("timeout_ms", 0)) * time.Millisecond
	return client(kgo.TransactionalID(arguments["id"]), kgo.TransactionTimeout(timeout))
}

func writeNext(producer *kgo.Client) error {
	ctx := context.Background()
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	record := &kgo.Record{Topic: arguments["topic"], Value: []byte("next")}
	if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
		_ = producer.EndTransaction(ctx, kgo.TryAbort)
		return err
	}
	return producer.EndTransaction(ctx, kgo.TryCommit)
}
