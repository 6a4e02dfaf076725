package convert

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

func GroupMember(p *pawlv1.GroupMember) *pawltype.GroupMember {
	return &pawltype.GroupMember{TaskID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(), State: State(p.GetState()),
		Refused: p.GetRefused(), Result: p.GetResult(), ResultContentType: p.GetResultContentType(), ResultOmitted: p.GetResultOmitted()}
}

// Read only.
var groupStateWords = Words[pawltype.GroupState](pawlv1.GroupState_name, "GROUP_STATE_")

func Group(p *pawlv1.Group) *pawltype.Group {
	c := p.GetCounts()
	return &pawltype.Group{ID: p.GetGroupId(), Name: p.GetName(), State: groupStateWords[int32(p.GetState())], Open: p.GetOpen(),
		Counts: pawltype.GroupCounts{Members: c.GetMembers(), Pending: c.GetPending(), Succeeded: c.GetSucceeded(), Dead: c.GetDead(),
			Poisoned: c.GetPoisoned(), Discarded: c.GetDiscarded(), Cancelled: c.GetCancelled(), Refused: c.GetRefused()},
		CreatedAt: Time(p.GetCreatedAt()), EndedAt: Time(p.GetEndedAt()), KeptUntil: Time(p.GetKeptUntil()),
		OnComplete: Follower(p.GetOnComplete()), OnSuccess: Follower(p.GetOnSuccess()), OnDeath: Follower(p.GetOnDeath())}
}

func Parent(p *pawlv1.Parent) *pawltype.Parent {
	if p == nil {
		return nil
	}
	return &pawltype.Parent{TaskID: p.GetTaskId(), GroupID: p.GetGroupId(), Result: p.GetResult(), ContentType: p.GetContentType(),
		Omitted: p.GetResultOmitted()}
}

// Read only.
var followerWords = Words[pawltype.FollowerState](pawlv1.FollowerState_name, "FOLLOWER_STATE_")

func Follower(p *pawlv1.Follower) *pawltype.Follower {
	if p == nil {
		return nil
	}
	return &pawltype.Follower{Type: p.GetType(), Queue: p.GetQueue(), State: followerWords[int32(p.GetState())], TaskID: p.GetTaskId(),
		Reason: p.GetReason()}
}

func Followers(list []*pawlv1.Follower) (out []pawltype.Follower) {
	for _, p := range list {
		out = append(out, *Follower(p))
	}
	return out
}
