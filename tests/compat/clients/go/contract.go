// Package main shares the command line and the records of all Go client programs; the build copies
// this file beside each of them (see ../README.md).
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

var (
	arguments = map[string]string{}
	started   = time.Now()
)

// record is one record of a result: partition, offset, timestamp, key, value.
type record [5]any

func number(name string, otherwise int) int {
	text, ok := arguments[name]
	if !ok {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func codec() string {
	if name, ok := arguments["codec"]; ok {
		return name
	}
	return "none"
}

// token returns what the file has that the argument `token` names.
func token() string {
	text, err := os.ReadFile(arguments["token"])
	check(err)
	return string(text)
}

// tlsConfig returns how to speak TLS: whom to trust, and a certificate of our own if one is given.
func tlsConfig() *tls.Config {
	authorities, err := os.ReadFile(arguments["ca"])
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authorities)
	if own, ok := arguments["cert"]; ok {
		pair, err := tls.LoadX509KeyPair(own, own)
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// produced returns partition, timestamp, key, value and header of record i of `produce`.
func produced(i int) (int, time.Time, []byte, []byte, []byte) {
	count := number("count", 1)
	stamp := int64(number("base", 0)) + int64(i*37%count)*1000
	value := fmt.Sprintf("value-%d-%s", i, strings.Repeat("x", 64))
	header := []byte(strconv.Itoa(i))
	return i % number("partitions", 1), time.UnixMilli(stamp), fmt.Appendf(nil, "key-%d", i), []byte(value), header
}

// transactions calls begin, send and finish as the scenario `transact` wants it.
func transactions(begin func(), send func(partition int, value string), finish func(commit bool)) {
	for part, prefix := range []string{"committed", "aborted", "committed"} {
		begin()
		first := part / 2 * 10
		for i := first; i < first+10; i++ {
			send(i%number("partitions", 1), fmt.Sprintf("%s-%d", prefix, i))
		}
		finish(part != 1)
	}
	emit(map[string]any{"committed": 20, "aborted": 10})
}

func overdue() bool {
	return time.Since(started) > time.Duration(number("timeout", 40))*time.Second
}

func wantsMore(seen int) bool {
	if stop, ok := arguments["stop"]; ok {
		_, err := os.Stat(stop)
		return err != nil && !overdue()
	}
	count := number("count", 0)
	if seen < count && overdue() {
		fail(fmt.Errorf("only %d of %d records came in time", seen, count))
	}
	return seen < count
}

func timestamps() []int64 {
	var result []int64
	for _, text := range strings.Split(arguments["timestamps"], ",") {
		value, err := strconv.ParseInt(text, 10, 64)
		check(err)
		result = append(result, value)
	}
	return result
}

func text(data []byte) any {
	if data == nil {
		return nil
	}
	return string(data)
}

func emit(document map[string]any) {
	line, err := json.Marshal(document)
	check(err)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	for _, pair := range os.Args[2:] {
		key, value, _ := strings.Cut(pair, "=")
		arguments[key] = value
	}
	scenario, ok := scenarios[os.Args[1]]
	if !ok {
		fail(fmt.Errorf("no scenario %s", os.Args[1]))
	}
	scenario()
}
