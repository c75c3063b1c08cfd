package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// single checks the usual operations of an application on one node.
func single(protocol int) {
	client := redis.NewClient(&redis.Options{
		Addr: os.Getenv("FONDACO_RESP"), Protocol: protocol, ClientName: "test", ReadTimeout: 30 * time.Second,
	})
	defer client.Close()
	expect("PONG", must(client.Ping(background).Result()))
	reads(client)
	pipelines(client)
	scans(client)
	writes(client)
	refuses(client)
}

func reads(client *redis.Client) {
	expect(value(7), must(client.Get(background, key(7)).Result()))
	if _, err := client.Get(background, "members:nobody").Result(); !errors.Is(err, redis.Nil) {
		panic(fmt.Sprintf("a missing key gave %v", err))
	}
	expect([]any{value(1), nil, value(2)}, must(client.MGet(background, key(1), "members:nobody", key(2)).Result()))
	expect(int64(2), must(client.Exists(background, key(1), "members:nobody", key(1)).Result()))
	expect(int64(11), must(client.StrLen(background, key(7)).Result()))
	expect("m7", must(client.GetRange(background, key(7), -2, -1).Result()))
	expect("string", must(client.Type(background, key(7)).Result()))
}

func pipelines(client *redis.Client) {
	answers := must(client.Pipelined(background, func(pipeline redis.Pipeliner) error {
		for n := range 1000 {
			pipeline.Get(background, key(n))
		}
		return nil
	}))
	for n, answer := range answers {
		expect(value(n), must(answer.(*redis.StringCmd).Result()))
	}
}

func scans(client *redis.Client) {
	found := map[string]bool{}
	iterator := client.Scan(background, 0, "members:*", 500).Iterator()
	for iterator.Next(background) {
		found[iterator.Val()] = true
	}
	must(0, iterator.Err())
	expect(rows, len(found))
}

func writes(client *redis.Client) {
	must(client.Del(background, "carts:g", "carts:gn").Result())
	expect(true, must(client.SetNX(background, "carts:g", "a", 100*time.Second).Result()))
	expect(false, must(client.SetNX(background, "carts:g", "b", 0).Result()))
	if left := must(client.TTL(background, "carts:g").Result()); left <= 90*time.Second {
		panic(fmt.Sprintf("%v to live", left))
	}
	expect(int64(3), must(client.Append(background, "carts:g", "bc").Result()))
	expect("abc", must(client.GetDel(background, "carts:g").Result()))
	expect(int64(5), must(client.IncrBy(background, "carts:gn", 5).Result()))
	expect("OK", must(client.MSet(background, "carts:gx", "1", "carts:gy", "2").Result()))
	expect([]any{"1", "2"}, must(client.MGet(background, "carts:gx", "carts:gy").Result()))
	expect(int64(2), must(client.Unlink(background, "carts:gx", "carts:gy").Result()))
}

func refuses(client *redis.Client) {
	err := client.Set(background, key(1), "x", 0).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		panic(fmt.Sprintf("a write to a batch store gave %v", err))
	}
}
