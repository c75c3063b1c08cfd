package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// The longest time in which the cluster and the client must recover from the loss of the node.
const recoveryMax = 60 * time.Second

// cluster reads from three nodes, kills one, and reads on, with the settings that docs/commands.md recommends.
func cluster() {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:           strings.Split(os.Getenv("FONDACO_NODES"), ","),
		ReadOnly:        true,
		RouteRandomly:   true,
		DialTimeout:     time.Second,
		ReadTimeout:     5 * time.Second,
		MaxRedirects:    8,
		MaxRetryBackoff: 500 * time.Millisecond,
	})
	defer client.Close()
	var lock sync.Mutex
	nodes := 0
	must(0, client.ForEachMaster(background, func(_ context.Context, _ *redis.Client) error {
		lock.Lock()
		defer lock.Unlock()
		nodes++
		return nil
	}))
	expect(3, nodes)
	must(0, onePass(client))
	answers := must(client.Pipelined(background, func(pipeline redis.Pipeliner) error {
		for n := range 1000 {
			pipeline.Get(background, key(n))
		}
		return nil
	}))
	for n, answer := range answers {
		expect(value(n), must(answer.(*redis.StringCmd).Result()))
	}
	survives(client)
}

func survives(client *redis.ClusterClient) {
	must(0, syscall.Kill(must(strconv.Atoi(os.Getenv("FONDACO_VICTIM"))), syscall.SIGKILL))
	killed := time.Now()
	failures := 0
	for {
		err := onePass(client)
		if err == nil {
			break
		}
		failures++
		if time.Since(killed) > recoveryMax {
			panic(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Printf("all keys again %.1f s after the kill, %d errors before\n", time.Since(killed).Seconds(), failures)
	for range 3 {
		must(0, onePass(client))
	}
}

func onePass(client *redis.ClusterClient) error {
	for n := 0; n < rows; n += 11 {
		found, err := client.Get(background, key(n)).Result()
		if err != nil {
			return err
		}
		expect(value(n), found)
	}
	return nil
}
