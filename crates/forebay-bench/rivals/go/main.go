// A cache in two tiers as a published Go article builds it: a sync.Map with lifetimes, Redis below it,
// and golang.org/x/sync/singleflight around the load, with a second look inside of it.
//
// Commands and answers are those of rivals/node/rival.mjs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

type entry struct {
	value     string
	expiresAt time.Time
}

type tiered struct {
	local  sync.Map
	redis  *redis.Client
	ttl    time.Duration
	flight singleflight.Group
}

func (c *tiered) get(ctx context.Context, key string) (string, bool) {
	if found, ok := c.local.Load(key); ok {
		stored := found.(entry)
		if time.Now().Before(stored.expiresAt) {
			return stored.value, true
		}
		c.local.Delete(key)
	}
	if c.redis == nil {
		return "", false
	}
	value, err := c.redis.Get(ctx, key).Result()
	if err != nil {
		return "", false
	}
	c.local.Store(key, entry{value, time.Now().Add(c.ttl)})
	return value, true
}

func (c *tiered) set(ctx context.Context, key, value string) error {
	c.local.Store(key, entry{value, time.Now().Add(c.ttl)})
	if c.redis == nil {
		return nil
	}
	return c.redis.Set(ctx, key, value, c.ttl).Err()
}

func (c *tiered) getOrLoad(ctx context.Context, key string, load func() string) (string, error) {
	if value, ok := c.get(ctx, key); ok {
		return value, nil
	}
	value, err, _ := c.flight.Do(key, func() (any, error) {
		if value, ok := c.get(ctx, key); ok {
			return value, nil
		}
		value := load()
		// Written as well as possible: the article ignores this error.
		_ = c.set(ctx, key, value)
		return value, nil
	})
	if err != nil {
		return "", err
	}
	return value.(string), nil
}

func (c *tiered) load(key string, callers int, span time.Duration, size int) map[string]any {
	var loads, errors atomic.Int64
	micros := make([]float64, callers)
	var all sync.WaitGroup
	for caller := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			begun := time.Now()
			value, err := c.getOrLoad(context.Background(), key, func() string {
				loads.Add(1)
				time.Sleep(span)
				return strings.Repeat("x", size)
			})
			if err != nil || len(value) != size {
				errors.Add(1)
			}
			micros[caller] = float64(time.Since(begun).Nanoseconds()) / 1e3
		}()
	}
	all.Wait()
	return map[string]any{"loads": loads.Load(), "errors": errors.Load(), "micros": micros}
}

func (c *tiered) reads(keys, tasks int, span time.Duration, seed uint64) map[string]any {
	bounds, sum := make([]float64, keys), 0.0
	for rank := range keys {
		sum += 1 / float64(rank+1)
		bounds[rank] = sum
	}
	random := rand.New(rand.NewPCG(seed, seed))
	ranks := make([]string, 65536)
	for at := range ranks {
		ranks[at] = fmt.Sprintf("key:%d", sort.SearchFloat64s(bounds, random.Float64()*sum))
	}
	var done, misses atomic.Int64
	var all sync.WaitGroup
	var lock sync.Mutex
	var micros []float64
	begun := time.Now()
	for task := range tasks {
		all.Add(1)
		go func() {
			defer all.Done()
			count, missed, times := 0, 0, []float64{}
			for at := task * 977; ; at++ {
				// The clock is read for one of sixteen reads, as in the other programs.
				timed := count%16 == 0
				var started time.Time
				if timed {
					if started = time.Now(); started.Sub(begun) >= span {
						break
					}
				}
				if _, ok := c.get(context.Background(), ranks[at%len(ranks)]); !ok {
					missed++
				}
				if timed {
					times = append(times, float64(time.Since(started).Nanoseconds())/1e3)
				}
				count++
			}
			done.Add(int64(count))
			misses.Add(int64(missed))
			lock.Lock()
			micros = append(micros, times...)
			lock.Unlock()
		}()
	}
	all.Wait()
	return map[string]any{
		"done": done.Load(), "misses": misses.Load(),
		"seconds": time.Since(begun).Seconds(), "micros": sample(micros),
	}
}

// Few enough times for one line.
func sample(micros []float64) []float64 {
	step := len(micros)/20000 + 1
	var some []float64
	for at := 0; at < len(micros); at += step {
		some = append(some, micros[at])
	}
	return some
}

func number(words []string, at int) int {
	parsed, err := strconv.Atoi(words[at])
	if err != nil {
		panic(err)
	}
	return parsed
}

func (c *tiered) command(words []string) map[string]any {
	ctx := context.Background()
	millis := func(at int) time.Duration { return time.Duration(number(words, at)) * time.Millisecond }
	switch words[0] {
	case "load":
		return c.load(words[1], number(words, 2), millis(3), number(words, 4))
	case "set":
		if err := c.set(ctx, words[1], strings.Repeat("x", number(words, 2))); err != nil {
			return map[string]any{"failed": err.Error()}
		}
	case "fill":
		for at := range number(words, 1) {
			_ = c.set(ctx, fmt.Sprintf("key:%d", at), strings.Repeat("x", number(words, 2)))
		}
	case "remove":
		c.local.Delete(words[1])
		if c.redis != nil {
			c.redis.Del(ctx, words[1])
		}
	case "reads":
		return c.reads(number(words, 1), number(words, 2), millis(3), uint64(number(words, 4)))
	default:
		return map[string]any{"failed": "no command " + words[0]}
	}
	return map[string]any{}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	var parts []string
	for _, module := range info.Deps {
		if strings.Contains(module.Path, "x/sync") || strings.Contains(module.Path, "go-redis") {
			parts = append(parts, module.Path+" "+module.Version)
		}
	}
	return info.GoVersion + ", " + strings.Join(parts, ", ")
}

func main() {
	millis, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	cache := &tiered{ttl: time.Duration(millis) * time.Millisecond}
	settings := map[string]any{"localTTL": cache.ttl.String(), "redisTTL": cache.ttl.String()}
	if len(os.Args) > 4 {
		options, err := redis.ParseURL(os.Args[4])
		if err != nil {
			panic(err)
		}
		cache.redis = redis.NewClient(options)
		settings["redis"] = "go-redis defaults: 3 retries, DialTimeout 5s, ReadTimeout 3s"
	}
	output := json.NewEncoder(os.Stdout)
	_ = output.Encode(map[string]any{"version": version(), "settings": settings})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		_ = output.Encode(cache.command(strings.Fields(lines.Text())))
	}
}
