package workflow

import (
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// check checks that exactly the tasks marked as followed have a row of follow-ups, that follow-ups wait only for tasks
// that have not succeeded, and that those on their way have a message.
func check(c engine.Checker) {
	sent, members := map[schema.Origin]bool{}, map[task.ID]bool{}
	c.Scan(schema.TableOutbox, func(k, v []byte) {
		p, err := schema.DecodeMessage(schema.IDAt(k), v)
		if err != nil {
			c.Find("message %s: %v", schema.IDAt(k), err)
			return
		}
		if to := schema.DecodeAddress(v); to != p.Address() {
			c.Find("message %s is sent to %+v, expected %+v", p.Request, to, p.Address())
		}
		sent[p.From] = true
		members[p.Request] = true
	})
	groups := checkGroups(c, members)
	rows := map[task.ID]bool{}
	c.Scan(schema.TableFollow, func(k, v []byte) {
		id := schema.IDAt(k)
		rows[id] = true
		all, err := schema.DecodeFollowers(v)
		if g := groups[id]; g != nil {
			checkPoints(c, g, all, sent)
			return
		}
		x := c.Tasks()[id]
		if err != nil || x == nil || x.Links == nil || !x.Links.Followed {
			c.Find("followers of %s are orphaned (%v)", id, err)
			return
		}
		for i := range all {
			f := &all[i]
			if waits := f.State == schema.FollowerWaiting; waits == (x.State == task.Succeeded) || waits != (f.Spec != nil) {
				c.Find("task %s is %s, and its follower %d is %s", id, x.State, i, f.State)
			}
			if way := (schema.Origin{Parent: id, N: i}); (f.State == schema.FollowerSent) != sent[way] {
				c.Find("follower %d of task %s is %s, and its message exists: %t", i, id, f.State, sent[way])
			}
		}
	})
	for id, x := range c.Tasks() {
		if x.Links != nil && x.Links.Followed && !rows[id] {
			c.Find("task %s has lost its followers", id)
		}
	}
}

// checkPoints checks that a group's row and the row of its points agree about which tasks wait.
func checkPoints(c engine.Checker, g *taskGroup, points []schema.Follower, sent map[schema.Origin]bool) {
	if len(points) != groupPoints {
		c.Find("group %s has %d points", g.id, len(points))
		return
	}
	for i := range points {
		f := &points[i]
		if waits := g.waits>>i&1 == 1; waits != (f.State == schema.FollowerWaiting) || waits != (f.Spec != nil) || waits &&
			g.state != Running {
			c.Find("group %s is %s, %s is %s, and it waits: %t", g.id, g.state, f.On, f.State, waits)
		}
		if way := (schema.Origin{Parent: g.id, N: i}); (f.State == schema.FollowerSent) != sent[way] {
			c.Find("%s of group %s is %s, and its message exists: %t", f.On, g.id, f.State, sent[way])
		}
	}
}

// checkGroups checks that the counters of each group match its members, that members of this shard are as their group
// records them, and that none is lost on its way. It returns the groups.
func checkGroups(c engine.Checker, messages map[task.ID]bool) map[task.ID]*taskGroup {
	groups := readGroups(c)
	members := checkMembers(c, groups, messages)
	for id, x := range c.Tasks() {
		if !x.Links.Member() || groups[x.Links.Group] == nil || groups[x.Links.Group].expired ||
			x.CreatedAt < groups[x.Links.Group].createdAt {
			continue // its group has been forgotten
		}
		end := x.State
		if !end.Ended() {
			end = 0
		}
		m := members[[2]task.ID{x.Links.Group, x.Links.Ref}]
		if follows := x.Links.Ref[0] >= 0x80; follows && x.Links.Revision == 0 && (m == nil || m.revision == 0 && m.id == task.ID{}) {
			continue // the shard that sent it has not reported its creation yet
		}
		if m == nil || m.id != id || m.revision != x.Links.Revision || m.state != end {
			c.Find("task %s is %s at turn %d, and its group has %+v", id, x.State, x.Links.Revision, m)
		}
	}
	return groups
}

// readGroups reads the groups, and checks that each is consistent.
func readGroups(c engine.Checker) map[task.ID]*taskGroup {
	groups := map[task.ID]*taskGroup{}
	c.Scan(schema.TableGroup, func(k, v []byte) {
		g, err := decodeGroup(schema.IDAt(k), v)
		if err != nil {
			c.Find("group %s: %v", schema.IDAt(k), err)
			return
		}
		groups[g.id] = g
		if c.Tasks()[g.id] != nil {
			c.Find("group %s has the id of a task", g.id)
		}
		if g.deadline != 0 {
			c.ExpectRow(schema.DeadlineKey(g.deadline, schema.OnGroup, c.Namespace(), g.id[:]), nil)
		}
		if ended := g.endedAt != 0; ended != (g.keptUntil != 0) || g.deadline == 0 && (ended || g.cancelling) || g.state == Complete &&
			!ended {
			c.Find("group %s is %s: ended %d, kept until %d, its deadline %d", g.id, g.state, g.endedAt, g.keptUntil, g.deadline)
		}
		if g.state == Running && !g.open && g.counts.Pending == 0 {
			c.Find("group %s is running, and nothing is pending", g.id)
		}
	})
	return groups
}

// checkMembers reads the members of groups, by group and reference, and checks them against the tasks and the groups' counts.
func checkMembers(c engine.Checker, groups map[task.ID]*taskGroup, messages map[task.ID]bool) map[[2]task.ID]*member {
	members, counts := map[[2]task.ID]*member{}, map[task.ID]Counts{}
	c.Scan(schema.TableMember, func(k, v []byte) {
		id, ref := task.ID(k[len(k)-32:len(k)-16]), schema.IDAt(k)
		m, err := decodeMember(v)
		if err != nil || groups[id] == nil {
			c.Find("member %s of group %s is orphaned (%v)", ref, id, err)
			return
		}
		members[[2]task.ID{id, ref}] = m
		n := counts[id]
		n.Members++
		*n.of(m)++
		counts[id] = n
		x := c.Tasks()[m.id]
		if here := m.id.Shard() == id.Shard(); !groups[id].expired && m.pending() && here && m.id != (task.ID{}) &&
			(x == nil || x.State.Ended()) {
			c.Find("member %s of group %s is pending, and task %s is not", ref, id, m.id)
		}
		if numbered := ref[0] < 0x80; m.pending() && m.id == (task.ID{}) && numbered && !messages[task.PartID(id, ref)] {
			c.Find("member %s of group %s is lost on its way", ref, id)
		}
	})
	for id, g := range groups {
		if !g.expired && counts[id] != g.counts {
			c.Find("group %s counts %+v, expected %+v", id, g.counts, counts[id])
		}
	}
	return members
}
