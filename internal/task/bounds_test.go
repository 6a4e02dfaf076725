package task

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// refuses checks that an error refuses the given field, or is nil if the field is empty.
func refuses(t *testing.T, what string, err error, field string) {
	t.Helper()
	switch e, refused := AsError(err); {
	case field == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case field != "" && (!refused || e.Field != field):
		t.Errorf("%s: %v, want a refusal of %s", what, err, field)
	}
}

func many(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("n%d", i)
	}
	return all
}

// Every field of a spec is accepted at its bounds, and refused beyond them.
func TestBoundsOfSpec(t *testing.T) {
	headers := func(n, bytes int) map[string]string {
		all := map[string]string{}
		for _, name := range many(n) {
			all[name] = ""
			bytes -= len(name)
		}
		all["n0"] = strings.Repeat("x", max(bytes, 0))
		return all
	}
	year := func(y int) func(*Spec) {
		return func(s *Spec) { s.RunAt = time.Date(y, 6, 1, 0, 0, 0, 0, time.UTC) }
	}
	for what, c := range map[string]struct {
		say   func(*Spec)
		field string
	}{
		"name of 256 bytes":      {func(s *Spec) { s.Type = strings.Repeat("x", 256) }, ""},
		"queue of 256 bytes":     {func(s *Spec) { s.Queue = strings.Repeat("x", 256) }, ""},
		"queue of all letters":   {func(s *Spec) { s.Queue = "azAZ09._-:" }, ""},
		"queue before a":         {func(s *Spec) { s.Queue = "`" }, "queue"},
		"queue after z":          {func(s *Spec) { s.Queue = "{" }, "queue"},
		"queue before A":         {func(s *Spec) { s.Queue = "@" }, "queue"},
		"queue after Z":          {func(s *Spec) { s.Queue = "[" }, "queue"},
		"queue before 0":         {func(s *Spec) { s.Queue = "/" }, "queue"},
		"queue after 9":          {func(s *Spec) { s.Queue = ";" }, "queue"},
		"queue of a dot":         {func(s *Spec) { s.Queue = "." }, "queue"},
		"priority 0":             {func(s *Spec) { s.Priority = High - 1 }, "priority"},
		"priority high":          {func(s *Spec) { s.Priority = High }, ""},
		"priority low":           {func(s *Spec) { s.Priority = Low }, ""},
		"priority 4":             {func(s *Spec) { s.Priority = Low + 1 }, "priority"},
		"delay":                  {func(s *Spec) { s.Delay = 365 * day }, ""},
		"longer delay":           {func(s *Spec) { s.Delay = 365*day + 1 }, "delay"},
		"the year 1970":          {year(1970), ""},
		"the year 1969":          {year(1969), "run_at"},
		"the year 9999":          {year(9999), ""},
		"the year 10000":         {year(10000), "run_at"},
		"key without a ttl":      {func(s *Spec) { s.IdempotencyKey = "k" }, ""},
		"longest ttl":            {func(s *Spec) { s.IdempotencyKey, s.IdempotencyTTL = "k", 365*day }, ""},
		"longer ttl":             {func(s *Spec) { s.IdempotencyKey, s.IdempotencyTTL = "k", 365*day+1 }, "idempotency_ttl"},
		"negative ttl":           {func(s *Spec) { s.IdempotencyKey, s.IdempotencyTTL = "k", -1 }, "idempotency_ttl"},
		"most attempts":          {func(s *Spec) { s.MaxAttempts = 1000 }, ""},
		"negative attempts":      {func(s *Spec) { s.MaxAttempts = -1 }, "max_attempts"},
		"largest cost":           {func(s *Spec) { s.Cost = 1000 }, ""},
		"larger cost":            {func(s *Spec) { s.Cost = 1001 }, "cost"},
		"negative cost":          {func(s *Spec) { s.Cost = -1 }, "cost"},
		"longest timeout":        {func(s *Spec) { s.Timeout = 24 * time.Hour }, ""},
		"longer timeout":         {func(s *Spec) { s.Timeout = 24*time.Hour + 1 }, "timeout"},
		"negative timeout":       {func(s *Spec) { s.Timeout = -1 }, "timeout"},
		"longest expiry":         {func(s *Spec) { s.ExpiresIn = 365 * day }, ""},
		"longer expiry":          {func(s *Spec) { s.ExpiresIn = 365*day + 1 }, "expires_in"},
		"longest retention":      {func(s *Spec) { d := 365 * day; s.Retention = &d }, ""},
		"no retention":           {func(s *Spec) { d := time.Duration(0); s.Retention = &d }, ""},
		"negative retention":     {func(s *Spec) { d := time.Duration(-1); s.Retention = &d }, "retention"},
		"longer retention":       {func(s *Spec) { d := 365*day + 1; s.Retention = &d }, "retention"},
		"most tags":              {func(s *Spec) { s.Tags = many(32) }, ""},
		"more tags":              {func(s *Spec) { s.Tags = many(33) }, "tags"},
		"a second tag is bad":    {func(s *Spec) { s.Tags = []string{"a", "\n"} }, "tags"},
		"long tag":               {func(s *Spec) { s.Tags = []string{strings.Repeat("x", 257)} }, "tags"},
		"most headers":           {func(s *Spec) { s.Headers = headers(64, 0) }, ""},
		"more headers":           {func(s *Spec) { s.Headers = headers(65, 0) }, "headers"},
		"largest headers":        {func(s *Spec) { s.Headers = headers(2, 16<<10) }, ""},
		"larger headers":         {func(s *Spec) { s.Headers = headers(2, 16<<10+1) }, "headers"},
		"header with a newline":  {func(s *Spec) { s.Headers = map[string]string{"a\n": "x"} }, "headers"},
		"header that is no text": {func(s *Spec) { s.Headers = map[string]string{"a\xff": "x"} }, "headers"},
		"value that is no text":  {func(s *Spec) { s.Headers = map[string]string{"a": "\xff"} }, "headers"},
		"value with a newline":   {func(s *Spec) { s.Headers = map[string]string{"a": "x\ny"} }, ""},
		"content type":           {func(s *Spec) { s.ContentType = "a\n" }, "content_type"},
		"bad retry":              {func(s *Spec) { s.Retry = &Retry{Factor: 101} }, "retry.factor"},
		"bad unique key":         {func(s *Spec) { s.Unique = &Unique{Key: "\n"} }, "unique.key"},
		"unique beside retry":    {func(s *Spec) { s.Retry, s.Unique = &DefaultRetry, &Unique{Key: "\n"} }, "unique.key"},
		"cost beside unique":     {func(s *Spec) { s.Unique, s.Timeout = &Unique{Key: "k"}, -1 }, "timeout"},
		"bad, but what follows":  {func(s *Spec) { s.Cost, s.Then = -1, []Spec{{Type: "a"}} }, "cost"},
		"what follows is bad":    {func(s *Spec) { s.Then = []Spec{{Type: "a"}, {Type: "b", Cost: -1}} }, "then[1].cost"},
	} {
		s := Spec{Type: "t"}
		s.Fill()
		c.say(&s)
		if s.IdempotencyTTL == 0 && s.IdempotencyKey != "" || s.Unique != nil || s.Then != nil {
			s.Fill()
		}
		refuses(t, what, s.Check(DefaultLimits()), c.field)
	}
	now := time.Unix(0, 0)
	refuses(t, "a year away", CheckRunAt("run_at", now.Add(MaxDelay), now), "")
	refuses(t, "an hour away", CheckRunAt("run_at", now.Add(time.Hour), now), "")
	refuses(t, "further away", CheckRunAt("run_at", now.Add(MaxDelay+1), now), "run_at")
}

// Limits that callers rely on do not change unnoticed.
func TestLimitsAreStable(t *testing.T) {
	for name, c := range map[string]struct{ is, was int }{
		"tasks in a claim": {MaxClaim, 1000}, "queues in a claim": {MaxClaimQueues, 100}, "types in a claim": {MaxClaimTypes, 1000},
		"a checkpoint": {MaxCheckpoint, 64 << 10}, "a message or a stack": {MaxErrorText, 8 << 10},
		"a progress text": {MaxProgressText, 1 << 10}, "a once result": {MaxOnceResult, 64 << 10}, "patterns": {MaxPatterns, 32},
		"stars": {MaxStars, 8}, "slots": {SlotCount, 64}, "shards": {MaxShard, 4095}, "members of a group": {MaxGroupMembers, 100_000},
		"a member's result": {MaxMemberResult, 16 << 10}, "a group's results": {MaxGroupResults, 64 << 20}, "an actor": {MaxActor, 256},
		"a reason": {MaxReason, 1 << 10}, "holds": {MaxHolds, 1000}, "samples of notifications": {
			NotificationSamples, 5},
	} {
		if c.is != c.was {
			t.Errorf("the limit of %s is %d, want %d", name, c.is, c.was)
		}
	}
}

// Fields that were not set get their defaults, and set ones stay.
func TestFill(t *testing.T) {
	s := Spec{Type: "t", IdempotencyKey: "k", Unique: &Unique{}, Then: []Spec{{Type: "u"}}}
	s.Fill()
	if s.Queue != "default" || s.Priority != Normal || s.IdempotencyTTL != day || s.Then[0].Queue != "default" ||
		s.Then[0].IdempotencyTTL != 0 || s.Unique.Key == "" || s.Unique.States != Unfinished || s.Unique.OnConflict != Keep {
		t.Errorf("an empty spec was filled as %+v, %+v", s, s.Unique)
	}
	s = Spec{Type: "t", Queue: "q", Priority: High, IdempotencyKey: "k", IdempotencyTTL: 5, Unique: &Unique{"u", allStates, Reject}}
	before := *s.Unique
	s.Fill()
	if s.Queue != "q" || s.Priority != High || s.IdempotencyTTL != 5 || *s.Unique != before {
		t.Errorf("Fill changed set fields: %+v, %+v", s, s.Unique)
	}
}

func TestBoundsOfRetry(t *testing.T) {
	const most = 365 * day
	for what, c := range map[string]struct {
		r     Retry
		field string
	}{
		"none":           {Retry{Factor: 1}, ""},
		"largest":        {Retry{Initial: most, Max: most, Factor: 100, Jitter: 1}, ""},
		"negative":       {Retry{Initial: -1, Factor: 1}, "r.initial"},
		"large initial":  {Retry{Initial: most + 1, Max: most + 1, Factor: 1}, "r.initial"},
		"small max":      {Retry{Initial: 2, Max: 1, Factor: 1}, "r.max"},
		"large max":      {Retry{Max: most + 1, Factor: 1}, "r.max"},
		"small factor":   {Retry{Factor: math.Nextafter(1, 0)}, "r.factor"},
		"large factor":   {Retry{Factor: math.Nextafter(100, 101)}, "r.factor"},
		"no factor":      {Retry{Factor: math.NaN()}, "r.factor"},
		"negative share": {Retry{Factor: 1, Jitter: -math.SmallestNonzeroFloat64}, "r.jitter"},
		"large share":    {Retry{Factor: 1, Jitter: math.Nextafter(1, 2)}, "r.jitter"},
		"no share":       {Retry{Factor: 1, Jitter: math.NaN()}, "r.jitter"},
	} {
		refuses(t, what, c.r.Check("r"), c.field)
	}
	for n, want := range map[int]time.Duration{-1: 30 * time.Second, 0: 30 * time.Second, 1: 30 * time.Second, 2: time.Minute,
		7: 30 * time.Minute} {
		if got := DefaultRetry.Delay(n, 0); got != want {
			t.Errorf("after %d attempts the delay is %v, want %v", n, got, want)
		}
	}
}

func TestBoundsOfBreaker(t *testing.T) {
	for what, c := range map[string]struct {
		say   func(*Breaker)
		field string
	}{
		"the default":    {func(*Breaker) {}, ""},
		"none":           {func(b *Breaker) { *b = Breaker{} }, ""},
		"rate 0":         {func(b *Breaker) { b.FailureRate = 0 }, "b.failure_rate"},
		"rate 1":         {func(b *Breaker) { b.FailureRate = 1 }, ""},
		"rate 100":       {func(b *Breaker) { b.FailureRate = 100 }, ""},
		"rate 101":       {func(b *Breaker) { b.FailureRate = 101 }, "b.failure_rate"},
		"window":         {func(b *Breaker) { b.Window = time.Second }, ""},
		"short window":   {func(b *Breaker) { b.Window = time.Second - 1 }, "b.window"},
		"hour":           {func(b *Breaker) { b.Window = time.Hour }, ""},
		"long window":    {func(b *Breaker) { b.Window = time.Hour + 1 }, "b.window"},
		"one attempt":    {func(b *Breaker) { b.MinAttempts = 1 }, ""},
		"no attempt":     {func(b *Breaker) { b.MinAttempts = 0 }, "b.min_attempts"},
		"most attempts":  {func(b *Breaker) { b.MinAttempts = 100_000 }, ""},
		"more attempts":  {func(b *Breaker) { b.MinAttempts = 100_001 }, "b.min_attempts"},
		"shortest hold":  {func(b *Breaker) { b.Hold = time.Second }, ""},
		"shorter hold":   {func(b *Breaker) { b.Hold = time.Second - 1 }, "b.hold"},
		"longest hold":   {func(b *Breaker) { b.Hold, b.MaxHold = day, day }, ""},
		"longer hold":    {func(b *Breaker) { b.Hold, b.MaxHold = day+1, day+1 }, "b.hold"},
		"least max hold": {func(b *Breaker) { b.MaxHold = b.Hold }, ""},
		"less max hold":  {func(b *Breaker) { b.MaxHold = b.Hold - 1 }, "b.max_hold"},
		"more max hold":  {func(b *Breaker) { b.MaxHold = day + 1 }, "b.max_hold"},
		"one probe":      {func(b *Breaker) { b.Probes = 1 }, ""},
		"no probe":       {func(b *Breaker) { b.Probes = 0 }, "b.probes"},
		"most probes":    {func(b *Breaker) { b.Probes = 100 }, ""},
		"more probes":    {func(b *Breaker) { b.Probes = 101 }, "b.probes"},
	} {
		b := DefaultBreaker
		c.say(&b)
		refuses(t, what, b.Check("b"), c.field)
	}
}

func TestBreakerFill(t *testing.T) {
	b := Breaker{}
	if b.Fill(); b != DefaultBreaker {
		t.Errorf("an empty breaker was filled as %+v", b)
	}
	b = Breaker{Hold: 20 * time.Minute}
	if b.Fill(); b.MaxHold != 20*time.Minute || b.Probes != 3 {
		t.Errorf("a breaker with a long hold was filled as %+v", b)
	}
	said := Breaker{1, 2, 3, 4, 5, 6}
	b = said
	if b.Fill(); b != said {
		t.Errorf("Fill changed %+v to %+v", said, b)
	}
}

// A breaker holds for twice as long each time that it opens, up to a bound.
func TestBreakerHolds(t *testing.T) {
	b := Breaker{Hold: 3 * time.Second, MaxHold: 10 * time.Second}
	for opened, want := range map[int]time.Duration{0: 3, 1: 3, 2: 6, 3: 10, 4: 10, 1_000_000: 10} {
		if got := b.HoldAfter(opened); got != want*time.Second {
			t.Errorf("opened %d times the breaker holds for %v, want %ds", opened, got, want)
		}
	}
}

func TestBreakersOfTypes(t *testing.T) {
	s := DefaultSettings()
	if s.Breaks() || s.BreakerOf("t").IsSet() {
		t.Error("the default settings have a breaker")
	}
	s.Breakers = map[string]Breaker{"own": DefaultBreaker, "none": {}}
	if !s.Breaks() || !s.BreakerOf("own").IsSet() || s.BreakerOf("t").IsSet() {
		t.Error("BreakerOf misses a type's own breaker, or returns it for another type")
	}
	if delete(s.Breakers, "own"); s.Breaks() {
		t.Error("a type without a breaker counts as one with a breaker")
	}
	s.Breaker = Breaker{FailureRate: 1}
	if s.BreakerOf("none").IsSet() || s.BreakerOf("t") != s.Breaker || !s.Breaks() {
		t.Error("a type with an entry of its own has the queue's breaker, or another type lacks it")
	}
	s.Breakers = nil
	if !s.Breaks() {
		t.Error("the queue's own breaker is ignored")
	}
}

// Each rule of a queue is accepted at its bounds, and refused beyond them.
func TestBoundsOfSettings(t *testing.T) {
	keyRules := func(n int) map[string]KeyRules {
		all := map[string]KeyRules{}
		for _, key := range many(n) {
			all[key] = KeyRules{Weight: 2}
		}
		return all
	}
	breakers := func(n int) map[string]Breaker {
		all := map[string]Breaker{}
		for _, typ := range many(n) {
			all[typ] = DefaultBreaker
		}
		return all
	}
	for what, c := range map[string]struct {
		say   func(*Settings)
		field string
	}{
		"least weights":        {func(s *Settings) { s.Weights = [3]int{1, 1, 1} }, ""},
		"most weights":         {func(s *Settings) { s.Weights = [3]int{1000, 1000, 1000} }, ""},
		"more weight":          {func(s *Settings) { s.Weights = [3]int{1, 1001, 1} }, "weights.normal"},
		"negative weight":      {func(s *Settings) { s.Weights = [3]int{-1, 1, 1} }, "weights.high"},
		"one attempt":          {func(s *Settings) { s.MaxAttempts = 1 }, ""},
		"most attempts":        {func(s *Settings) { s.MaxAttempts = 1000 }, ""},
		"more attempts":        {func(s *Settings) { s.MaxAttempts = 1001 }, "max_attempts"},
		"shortest lease":       {func(s *Settings) { s.Lease = time.Second }, ""},
		"shorter lease":        {func(s *Settings) { s.Lease = time.Second - 1 }, "lease"},
		"longest lease":        {func(s *Settings) { s.Lease = 12 * time.Hour }, ""},
		"longer lease":         {func(s *Settings) { s.Lease = 12*time.Hour + 1 }, "lease"},
		"longest timeout":      {func(s *Settings) { s.Timeout = 24 * time.Hour }, ""},
		"longer timeout":       {func(s *Settings) { s.Timeout = 24*time.Hour + 1 }, "timeout"},
		"shortest wait":        {func(s *Settings) { s.MaxWait = time.Second }, ""},
		"shorter wait":         {func(s *Settings) { s.MaxWait = time.Second - 1 }, "max_wait"},
		"longest wait":         {func(s *Settings) { s.MaxWait = 365 * day }, ""},
		"longer wait":          {func(s *Settings) { s.MaxWait = 365*day + 1 }, "max_wait"},
		"retention discarded":  {func(s *Settings) { s.Retention.Discarded = 366 * day }, "retention.discarded"},
		"retention cancelled":  {func(s *Settings) { s.Retention.Cancelled = 366 * day }, "retention.cancelled"},
		"retention poisoned":   {func(s *Settings) { s.Retention.Poisoned = 366 * day }, "retention.poisoned"},
		"most running":         {func(s *Settings) { s.MaxRunning = 1_000_000 }, ""},
		"more running":         {func(s *Settings) { s.MaxRunning = 1_000_001 }, "max_running"},
		"negative running":     {func(s *Settings) { s.MaxRunning = -1 }, "max_running"},
		"least rate":           {func(s *Settings) { s.Rate = Rate{Limit: 1, Period: time.Second} }, ""},
		"most rate":            {func(s *Settings) { s.Rate = Rate{Limit: 1_000_000, Period: day, Burst: 1_000_000} }, ""},
		"no rate":              {func(s *Settings) { s.Rate = Rate{Period: time.Second} }, "rate.limit"},
		"more rate":            {func(s *Settings) { s.Rate = Rate{Limit: 1_000_001, Period: time.Second} }, "rate.limit"},
		"shorter period":       {func(s *Settings) { s.Rate = Rate{Limit: 1, Period: time.Second - 1} }, "rate.period"},
		"longer period":        {func(s *Settings) { s.Rate = Rate{Limit: 1, Period: day + 1} }, "rate.period"},
		"negative burst":       {func(s *Settings) { s.Rate = Rate{Limit: 1, Period: time.Second, Burst: -1} }, "rate.burst"},
		"more burst":           {func(s *Settings) { s.Rate = Rate{Limit: 1, Period: time.Second, Burst: 1_000_001} }, "rate.burst"},
		"all keys":             {func(s *Settings) { s.PerKey = KeyRules{Rules: Rules{MaxRunning: -1}} }, "per_key.max_running"},
		"weight of all keys":   {func(s *Settings) { s.PerKey.Weight = 2 }, "per_key.weight"},
		"weight 1 of all keys": {func(s *Settings) { s.PerKey.Weight = 1 }, ""},
		"most keys":            {func(s *Settings) { s.Keys = keyRules(1000) }, ""},
		"more keys":            {func(s *Settings) { s.Keys = keyRules(1001) }, "keys"},
		"empty key":            {func(s *Settings) { s.Keys = map[string]KeyRules{"": {}} }, "keys"},
		"bad key":              {func(s *Settings) { s.Keys = map[string]KeyRules{"\n": {}} }, "keys"},
		"weight of a key":      {func(s *Settings) { s.Keys = map[string]KeyRules{"k": {Weight: 1000}} }, ""},
		"more weight of a key": {func(s *Settings) { s.Keys = map[string]KeyRules{"k": {Weight: 1001}} }, "keys.k.weight"},
		"less weight of a key": {func(s *Settings) { s.Keys = map[string]KeyRules{"k": {Weight: -1}} }, "keys.k.weight"},
		"rate of a key": {func(s *Settings) { s.Keys = map[string]KeyRules{"k": {Rules: Rules{Rate: Rate{Limit: 1}}}} },
			"keys.k.rate.period"},
		"bad breaker":          {func(s *Settings) { s.Breaker = Breaker{FailureRate: 101} }, "breaker.failure_rate"},
		"most breakers":        {func(s *Settings) { s.Breakers = breakers(1000) }, ""},
		"more breakers":        {func(s *Settings) { s.Breakers = breakers(1001) }, "breakers"},
		"breaker of no type":   {func(s *Settings) { s.Breakers = map[string]Breaker{"": {}} }, "breakers"},
		"breaker of a bad one": {func(s *Settings) { s.Breakers = map[string]Breaker{"\n": {}} }, "breakers"},
		"bad breaker of a two": {func(s *Settings) { s.Breakers = map[string]Breaker{"a": DefaultBreaker, "t": {Probes: 1}} },
			"breakers.t.failure_rate"},
		"rate of a second key": {func(s *Settings) { s.Keys = map[string]KeyRules{"a": {Weight: 2}, "k": {Weight: -1}} }, "keys.k.weight"},
		"a length":             {func(s *Settings) { s.MaxLength = 10 }, ""},
		"strict order":         {func(s *Settings) { s.KeyOrder = KeyOrderStrict }, ""},
		"another order":        {func(s *Settings) { s.KeyOrder = "loose" }, "key_order"},
		"bad breaker of a one": {func(s *Settings) { s.Breakers = map[string]Breaker{"t": {Probes: 1}} }, "breakers.t.failure_rate"},
	} {
		s := DefaultSettings()
		c.say(&s)
		refuses(t, what, s.Check(), c.field)
	}
}

func TestBoundsOfQuotas(t *testing.T) {
	for _, name := range AllQuotas {
		for v, field := range map[int64]string{0: "", 1 << 50: "", 1<<50 + 1: "quotas." + string(name), -1: "quotas." + string(name)} {
			refuses(t, fmt.Sprintf("%s of %d", name, v), Quotas{}.Change(QuotaChange{name: v}).Check(), field)
		}
	}
	all := QuotaChange{}
	for i, name := range AllQuotas {
		all[name] = int64(i + 1)
	}
	if got := (Quotas{}).Change(all); got != (Quotas{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("quotas 1 to 7 were set as %+v", got)
	}
	if got := (Quotas{Backlog: 5, Running: 7, Queues: 9}).Whole(); got != (Amounts{5, NoLimit, 7}) {
		t.Errorf("the quotas as amounts are %+v", got)
	}
	for q, tasks := range map[Quotas]bool{{}: false, {Queues: 1, Schedules: 1, Requests: 1, Bytes: 1}: false, {Backlog: 1}: true,
		{BacklogBytes: 1}: true, {Running: 1}: true} {
		if q.Tasks() != tasks {
			t.Errorf("%+v limits tasks: %v", q, q.Tasks())
		}
	}
	s := Spec{Payload: make([]byte, 3), Then: []Spec{{Payload: make([]byte, 4)}, {Then: []Spec{{Payload: make([]byte, 5)}}}}}
	if s.Size() != 12 {
		t.Errorf("payloads of 3, 4 and 5 bytes have size %d", s.Size())
	}
}

func TestBoundsOfSchedule(t *testing.T) {
	long := strings.Repeat("x", 256)
	for what, c := range map[string]struct {
		say   func(*Schedule)
		field string
	}{
		"cron":              {func(*Schedule) {}, ""},
		"every":             {func(s *Schedule) { s.Cron, s.Every = "", time.Minute }, ""},
		"a zone":            {func(s *Schedule) { s.TimeZone = "Europe/Berlin" }, ""},
		"no name":           {func(s *Schedule) { s.Name = "" }, "name"},
		"neither":           {func(s *Schedule) { s.Cron = "" }, "cron"},
		"both":              {func(s *Schedule) { s.Every = 1 }, "every"},
		"every with a zone": {func(s *Schedule) { s.Cron, s.Every, s.TimeZone = "", 1, "UTC" }, "time_zone"},
		"most jitter":       {func(s *Schedule) { s.Jitter = day }, ""},
		"more jitter":       {func(s *Schedule) { s.Jitter = day + 1 }, "jitter"},
		"negative jitter":   {func(s *Schedule) { s.Jitter = -1 }, "jitter"},
		"missed: skip":      {func(s *Schedule) { s.Missed = MissedSkip }, ""},
		"missed: all":       {func(s *Schedule) { s.Missed = MissedAll }, ""},
		"missed: another":   {func(s *Schedule) { s.Missed = "never" }, "missed"},
		"overlap: skip":     {func(s *Schedule) { s.Overlap = OverlapSkip }, ""},
		"overlap: another":  {func(s *Schedule) { s.Overlap = "never" }, "overlap"},
		"bad owner":         {func(s *Schedule) { s.Owner = "\n" }, "owner"},
		"delay":             {func(s *Schedule) { s.Task.Delay = 1 }, "task.delay"},
		"run_at":            {func(s *Schedule) { s.Task.RunAt = time.Unix(1, 0) }, "task.run_at"},
		"idempotency key":   {func(s *Schedule) { s.Task.IdempotencyKey = "k" }, "task.idempotency_key"},
		"request id":        {func(s *Schedule) { s.Task.RequestID = ID{1} }, "task.request_id"},
		"member":            {func(s *Schedule) { s.Task.Member = &Member{} }, "task.group_id"},
		"unique":            {func(s *Schedule) { s.Task.Unique = &Unique{} }, ""},
		"unique and skip":   {func(s *Schedule) { s.Task.Unique, s.Overlap = &Unique{}, OverlapSkip }, "task.unique"},
		"long name":         {func(s *Schedule) { s.Name = long }, ""},
		"long and skip":     {func(s *Schedule) { s.Name, s.Overlap = long[:256-len("schedule:")+1], OverlapSkip }, "name"},
		"longest and skip":  {func(s *Schedule) { s.Name, s.Overlap = long[:256-len("schedule:")], OverlapSkip }, ""},
		"bad task":          {func(s *Schedule) { s.Task.Cost = -1 }, "task.cost"},
	} {
		s := Schedule{Name: "s", Cron: "* * * * *", Task: Spec{Type: "t"}}
		c.say(&s)
		s.Fill()
		refuses(t, what, s.Check(DefaultLimits()), c.field)
		if tick := s.TickSpec(); IsOverlap(tick.Unique) != (s.Overlap == OverlapSkip) {
			t.Errorf("%s: the ticks have unique key %+v", what, tick.Unique)
		}
	}
	s := Schedule{Name: long, Cron: "* * * * *", Task: Spec{Type: "t"}, Overlap: OverlapSkip}
	s.Fill()
	want := fmt.Sprintf("at most %d are allowed", 256-len(overlapKey))
	if err := s.Check(DefaultLimits()); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("a name that is too long with an overlap key: %v", err)
	}
	if IsOverlap(nil) || IsOverlap(&Unique{Key: "other"}) {
		t.Error("another key was taken for the overlap key of a schedule")
	}
}

func TestBoundsOfChains(t *testing.T) {
	l := DefaultLimits()
	depth := func(n int) []Spec {
		var then []Spec
		for range n {
			then = []Spec{{Type: "t", Then: then}}
		}
		return then
	}
	wide := func(n int) []Spec { return slices.Repeat([]Spec{{Type: "t"}}, n) }
	tree := wide(8) // and those that follow each of them
	for i := range tree {
		tree[i].Then = wide(8)
	}
	hundred := slices.Clone(tree) // 8 + 64, and 28 behind four of the last
	for i := range 4 {
		inner := wide(8)
		inner[0].Then = wide(7)
		hundred[i].Then = inner
	}
	more := slices.Clone(hundred)
	more[7].Then = wide(8)
	more[7].Then[0].Then = wide(1)
	size := (&Spec{Type: "t", Queue: "default"}).size()
	payload := func(extra int) []Spec {
		return []Spec{{Type: "t", Payload: make([]byte, l.Payload/2-size)}, {Type: "t", Payload: make([]byte, l.Payload/2-size+extra)}}
	}
	for what, c := range map[string]struct {
		then  []Spec
		field string
	}{
		"8 at once":         {wide(8), ""},
		"9 at once":         {wide(9), "then"},
		"20 in a row":       {depth(20), ""},
		"21 in a row":       {depth(21), "then" + strings.Repeat("[0].then", 20)},
		"100 in all":        {hundred, ""},
		"101 in all":        {more, "then[7].then"},
		"most bytes":        {payload(0), ""},
		"more bytes":        {payload(1), "then"},
		"with a request id": {[]Spec{{Type: "t", RequestID: ID{1}}}, "then[0].request_id"},
		"of a group":        {[]Spec{{Type: "t", Member: &Member{}}}, "then[0].group_id"},
		"without a type":    {[]Spec{{Type: "t"}, {}}, "then[1].type"},
	} {
		s := Spec{Type: "t", Then: c.then}
		s.Fill()
		refuses(t, what, s.Check(l), c.field)
	}
	s := Spec{Type: "1", Queue: "22", Key: "333", IdempotencyKey: "4444", Payload: make([]byte, 5), ContentType: "666666",
		Tags: []string{"7777777", "8"}, Headers: map[string]string{"99": "99"}}
	if got := s.size() - (&Spec{}).size(); got != 1+2+3+4+5+6+7+1+4 {
		t.Errorf("a spec of 33 bytes has size %d", got)
	}
}

func TestBoundsOfGroups(t *testing.T) {
	hold := 366 * day
	large := make([]byte, 1<<20)
	tasks := func(n int, s Spec) []Spec { return slices.Repeat([]Spec{s}, n) }
	for what, c := range map[string]struct {
		g     Group
		field string
	}{
		"a task":          {Group{Tasks: tasks(1, Spec{Type: "t"})}, ""},
		"no task":         {Group{}, "tasks"},
		"open":            {Group{Open: true}, ""},
		"bad name":        {Group{Open: true, Name: "\n"}, "name"},
		"long retention":  {Group{Open: true, Retention: &hold}, "retention"},
		"1000 tasks":      {Group{Tasks: tasks(1000, Spec{Type: "t"})}, ""},
		"1001 tasks":      {Group{Tasks: tasks(1001, Spec{Type: "t"})}, "tasks"},
		"bad task":        {Group{Tasks: []Spec{{Type: "t"}, {}}}, "tasks[1].type"},
		"another's task":  {Group{Tasks: []Spec{{Type: "t", Member: &Member{}}}}, "tasks[0].group_id"},
		"bad callback":    {Group{Open: true, OnSuccess: &Spec{}}, "on_success.type"},
		"named callback":  {Group{Open: true, OnDeath: &Spec{Type: "t", RequestID: ID{1}}}, "on_death.request_id"},
		"member callback": {Group{Open: true, OnComplete: &Spec{Type: "t", Member: &Member{}}}, "on_complete.group_id"},
		"7 MiB":           {Group{Tasks: tasks(7, Spec{Type: "t", Payload: large})}, ""},
		"8 MiB and some":  {Group{Tasks: tasks(8, Spec{Type: "t", Payload: large})}, "tasks"},
		"with callbacks":  {Group{Tasks: tasks(7, Spec{Type: "t", Payload: large}), OnSuccess: &Spec{Type: "t", Payload: large}}, "tasks"},
		"with chains": {Group{Tasks: tasks(7, Spec{Type: "t", Payload: large[:1<<19], Then: []Spec{{Type: "t", Payload: large[:3<<18]}}})},
			"tasks"},
	} {
		c.g.Fill()
		refuses(t, what, c.g.Check(DefaultLimits()), c.field)
	}
	hold = day
	refuses(t, "callback beside retention", (&Group{Open: true, Retention: &hold, OnSuccess: &Spec{}}).Check(DefaultLimits()),
		"on_success.type")
	full := tasks(8, Spec{Type: "t"})
	full[0].Fill()
	rest := MaxGroupBytes/8 - full[0].size()
	for i := range full {
		full[i].Fill()
		full[i].Payload = large[:rest]
	}
	refuses(t, "as many bytes as may be", CheckMembers(full, DefaultLimits()), "")
	refuses(t, "as many bytes as may be, of a group", (&Group{Tasks: full}).Check(DefaultLimits()), "")
	full[7].Key = "k"
	refuses(t, "a byte more", CheckMembers(full, DefaultLimits()), "tasks")
	refuses(t, "more members", CheckMembers(tasks(2, Spec{Type: "t", Queue: "q", Priority: Low}), Limits{Payload: 9, Name: 9, Batch: 1}),
		"tasks")
}

// The shards' parts of a queue's rate add up to the rate. Those of its burst are rounded up, and never zero.
func TestRateBySlots(t *testing.T) {
	r := Rate{Limit: 6, Period: time.Second}
	for slots, want := range map[int]Rate{
		64: {6, time.Second, 6}, 32: {6, 2 * time.Second, 3}, 1: {6, 64 * time.Second, 1}, 0: {6, 64 * time.Second, 1},
	} {
		if got := r.BySlots(slots); got != want {
			t.Errorf("%+v by %d slots is %+v, want %+v", r, slots, got, want)
		}
	}
	if got := r.BySlots(32).Whole(32); got != (Rate{6, time.Second, 6}) {
		t.Errorf("Whole of half a rate is %+v", got)
	}
	if got := r.BySlots(0).Whole(0); got.Period != time.Second {
		t.Errorf("Whole of an empty part is %+v", got)
	}
	if got := (Rate{}).BySlots(1); got != (Rate{}) || got.Whole(1) != (Rate{}) {
		t.Errorf("the part without a rate is %+v", got)
	}
	if got := (Rate{Limit: 9, Period: time.Second, Burst: 1}).BySlots(1); got.Burst != 1 {
		t.Errorf("a 64th of a bucket of 1 has capacity %d, want 1", got.Burst)
	}
	if (Rate{}).IsSet() || !(Rate{Limit: 1}).IsSet() {
		t.Error("IsSet is wrong for an empty rate or for a set one")
	}
	for _, burst := range []int{1, 5} {
		if got := (Rate{Limit: 3, Burst: burst}).Capacity(); got != burst {
			t.Errorf("a bucket with burst %d has capacity %d", burst, got)
		}
	}
}

func TestRulesOfKeys(t *testing.T) {
	own, all := KeyRules{Weight: 2}, KeyRules{Rules: Rules{MaxRunning: 1}}
	s := Settings{PerKey: all, Keys: map[string]KeyRules{"own": own}}
	if s.RulesOf("own") != own || s.RulesOf("other") != all || s.RulesOf("") != (KeyRules{}) {
		t.Errorf("the rules of the keys are %+v, %+v, %+v", s.RulesOf("own"), s.RulesOf("other"), s.RulesOf(""))
	}
}

func TestSlots(t *testing.T) {
	set := SlotSet(1<<0 | 1<<3 | 1<<63)
	for n, want := range map[int]SlotSet{-1: 0, 0: 0, 1: 1, 2: 1 | 1<<3, 3: set, 9: set} {
		if got := set.First(n); got != want || got.Len() != min(max(n, 0), 3) {
			t.Errorf("the first %d slots of %b are %b", n, set, got)
		}
	}
	if !set.Has(63) || set.Has(62) || !set.Has(0) || AllSlots.Len() != SlotCount {
		t.Error("Has or Len is wrong")
	}
	// Slots are stored: they never change. A task's slot depends on its key, else its unique key, else its idempotency
	// key, else its request. Equal keys are in one slot, whatever they are keys of.
	s := Spec{Key: "a", Unique: &Unique{Key: "a"}, IdempotencyKey: "a", RequestID: ID{1}}
	var got []int
	for _, less := range []func(){func() {}, func() { s.Key = "" }, func() { s.Unique = nil }, func() { s.IdempotencyKey = "" }} {
		less()
		slot, ok := s.Slot()
		if !ok || slot < 0 || slot >= SlotCount {
			t.Errorf("%+v has slot %d, %v", s, slot, ok)
		}
		got = append(got, slot)
	}
	got = append(got, OnceSlot("a"))
	if want := []int{16, 16, 16, 50, 48}; !slices.Equal(got, want) {
		t.Errorf("by key, unique key, idempotency key, request and once key the slots are %v, want %v", got, want)
	}
	if _, ok := (&Spec{}).Slot(); ok {
		t.Error("a spec without a key has a slot")
	}
}

func TestPauses(t *testing.T) {
	at := time.Unix(1, 0)
	var first QueueConfig
	if _ = first.Pause(Hold{By: "one", At: at}); first.PausedBy != "one" {
		t.Errorf("after a pause without a reason: %+v", first)
	}
	var c QueueConfig
	_ = c.Pause(Hold{Reason: "a", By: "one", At: at})
	_ = c.Pause(Hold{Reason: "a", By: "two", At: at.Add(1)})
	if !c.Paused || c.PausedReason != "a" || c.PausedBy != "one" || !c.PausedAt.Equal(at) {
		t.Errorf("after a second pause for the same reason: %+v", c)
	}
	_ = c.Pause(Hold{Reason: "b", By: "two", At: at.Add(1)})
	if c.PausedReason != "b" || c.PausedBy != "two" || !c.PausedAt.Equal(at) {
		t.Errorf("after a pause for another reason: %+v", c)
	}
	_ = c.Pause(Hold{Type: "x", Reason: "a", By: "one", At: at})
	_ = c.Pause(Hold{Key: "x", Reason: "a", By: "one", At: at})
	before := c.Holds
	_ = c.Pause(Hold{Key: "x", Reason: "a", By: "two"})
	_ = c.Pause(Hold{Type: "x", Reason: "b", By: "two"})
	if want := []Hold{{"x", "", "b", "two", at}, {"", "x", "a", "one", at}}; !slices.Equal(c.Holds, want) || before[0].Reason != "a" {
		t.Errorf("the holds are %+v, and the earlier ones are %+v", c.Holds, before)
	}
	if h, ok := c.HeldType("x"); !ok || h.Reason != "b" {
		t.Errorf("HeldType = %+v, %v", h, ok)
	}
	if h, ok := c.HeldKey("x"); !ok || h.Reason != "a" {
		t.Errorf("HeldKey = %+v, %v", h, ok)
	}
	for _, name := range []string{"", "y"} {
		_, byType := c.HeldType(name)
		_, byKey := c.HeldKey(name)
		if byType || byKey {
			t.Errorf("%q is held as a type: %v, as a key: %v", name, byType, byKey)
		}
	}
	keys := QueueConfig{Paused: true, Holds: []Hold{{Key: "x"}, {Key: "y"}}}
	if _ = keys.Resume(Hold{Key: "x"}); !keys.Paused || len(keys.Holds) != 1 || keys.Holds[0].Key != "y" {
		t.Errorf("after a key was resumed: %+v", keys)
	}
	_ = c.Resume(Hold{Type: "x"})
	if !c.Paused || len(c.Holds) != 1 || c.Holds[0].Key != "x" {
		t.Errorf("after a type was resumed: %+v", c)
	}
	_ = c.Resume(Hold{})
	if c.Paused || c.PausedReason+c.PausedBy != "" || !c.PausedAt.IsZero() || len(c.Holds) != 1 {
		t.Errorf("after the queue was resumed: %+v", c)
	}
	for i := range MaxHolds - 1 {
		if err := c.Pause(Hold{Type: fmt.Sprint(i)}); err != nil {
			t.Fatalf("Pause of type %d: %v", i, err)
		}
	}
	refuses(t, "one pause too many", c.Pause(Hold{Type: "more"}), "queue")
	if len(c.Holds) != MaxHolds {
		t.Errorf("after the refused pause there are %d holds", len(c.Holds))
	}
	for what, h := range map[string]Hold{"key": {Type: "a", Key: "b"}, "type": {Type: "\n"}} {
		refuses(t, what, h.Check(DefaultLimits()), what)
	}
	refuses(t, "bad key", Hold{Key: "\n"}.Check(DefaultLimits()), "key")
	refuses(t, "a key", Hold{Key: "a"}.Check(DefaultLimits()), "")
	refuses(t, "a type", Hold{Type: "a"}.Check(DefaultLimits()), "")
}

// A configuration is encoded with anything in it that may keep a task from running.
func TestEncodedLimits(t *testing.T) {
	for what, say := range map[string]func(*QueueConfig){
		"rules":              func(c *QueueConfig) { c.Settings.MaxRunning = 1 },
		"of all keys":        func(c *QueueConfig) { c.Settings.PerKey.MaxRunning = 1 },
		"of a key":           func(c *QueueConfig) { c.Settings.Keys = map[string]KeyRules{"k": {}} },
		"breaker":            func(c *QueueConfig) { c.Settings.Breaker = DefaultBreaker },
		"breaker of a type":  func(c *QueueConfig) { c.Settings.Breakers = map[string]Breaker{"t": DefaultBreaker} },
		"order of keys":      func(c *QueueConfig) { c.Settings.KeyOrder = KeyOrderStrict },
		"a type that paused": func(c *QueueConfig) { c.Holds = []Hold{{Type: "t"}} },
	} {
		c := QueueConfig{Settings: DefaultSettings()}
		say(&c)
		again, err := DecodeQueueConfig(c.Encode())
		if err != nil || !again.Equal(c) || c.Equal(QueueConfig{Settings: DefaultSettings()}) {
			t.Errorf("%s: %+v was decoded as %+v, %v", what, c, again, err)
		}
	}
}

// Stored data is decoded only in a known format.
func TestUnknownForms(t *testing.T) {
	for what, read := range map[string]func([]byte) error{
		"queue":    func(b []byte) error { _, err := DecodeQueueConfig(b); return err },
		"schedule": func(b []byte) error { _, err := DecodeSchedule(b); return err },
		"spec":     func(b []byte) error { _, err := DecodeSpec(b); return err },
	} {
		if err := read([]byte("\x01{}")); err != nil {
			t.Errorf("%s: decoding an empty object: %v", what, err)
		}
		for _, bad := range []string{"", "\x02{}", "\x00{}", "\x01{", "{}"} {
			if read([]byte(bad)) == nil {
				t.Errorf("%s: %q was decoded without an error", what, bad)
			}
		}
	}
	s := Spec{Type: "t", Then: []Spec{{Type: "u"}}, Headers: map[string]string{"a": "b"}}
	if again, err := DecodeSpec(EncodeSpec(&s)); err != nil || again.Type != "t" || len(again.Then) != 1 ||
		!maps.Equal(again.Headers, s.Headers) {
		t.Errorf("%+v was decoded as %+v, %v", s, again, err)
	}
}

// The text between a key's first braces determines its slot.
func TestKeySlots(t *testing.T) {
	for key, like := range map[string]string{"{a}": "a", "x{a}y": "a", "{a}{b}": "a", "{{a}b": "{a", "{}a": "{}a", "a{": "a{", "}a{b}": "b",
		"{}{a}": "{}{a}", "a}": "a}", "}": "}", "": ""} {
		if slotTag(key) != like || KeySlot(key) != slotOf('k', []byte(like)) {
			t.Errorf("the slot of %q depends on %q, want %q", key, slotTag(key), like)
		}
		if got := Beside(key, "name"); KeySlot(got) != KeySlot(key) {
			t.Errorf("%q is not beside %q", got, key)
		}
	}
	unique := func(key string) *Unique { return &Unique{Key: key} }
	for _, c := range []struct {
		s     Spec
		slots int
		field string
	}{
		{Spec{}, 0, ""},
		{Spec{RequestID: ID{1}}, 1, ""},
		{Spec{Key: "a", RequestID: ID{1}}, 1, ""},
		{Spec{Key: "a", Unique: unique("{a}b"), IdempotencyKey: "c{a}"}, 1, ""},
		{Spec{Key: "a", Unique: unique("b"), IdempotencyKey: "a"}, 2, "unique.key"},
		{Spec{Key: "a", IdempotencyKey: "b"}, 2, "idempotency_key"},
		{Spec{Unique: unique("a"), IdempotencyKey: "b"}, 2, "idempotency_key"},
		{Spec{Key: "a", Moved: &Moved{}}, 1, ""},
		{Spec{Key: "a", Unique: unique("b"), IdempotencyKey: "c"}, 3, "unique.key"},
	} {
		err, refused := AsError(c.s.CheckSlots())
		if got := c.s.Slots(); got.Len() != c.slots || refused != (c.field != "") || refused && err.Field != c.field {
			t.Errorf("%+v is in %d slots, %v, want %d, refused for %q", c.s, got.Len(), err, c.slots, c.field)
		}
		if slot, ok := c.s.Slot(); ok != (c.slots > 0) || ok && !c.s.Slots().Has(slot) {
			t.Errorf("%+v is in slot %d, which is not in %b", c.s, slot, c.s.Slots())
		}
	}
	moved := Spec{Key: "a", Unique: unique("b"), Moved: &Moved{}}
	if slot, ok := moved.Slot(); !ok || slot != KeySlot("b") || moved.Slots() != 1<<slot {
		t.Errorf("a moved task is in slot %d of %b, want that of its unique key, %d", slot, moved.Slots(), KeySlot("b"))
	}
}
