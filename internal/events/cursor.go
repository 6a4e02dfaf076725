package events

import (
	"encoding/binary"
	"errors"
)

// maxShards bounds the number of shards in a cursor.
const maxShards = 1 << 12

// Encode returns the places as bytes: for each shard its number, then the place's era, index and number.
func (p Places) Encode() []byte {
	b := make([]byte, 0, 16*len(p))
	for _, shard := range p.shards() {
		at := p[shard]
		b = binary.AppendUvarint(b, uint64(shard))
		b = binary.BigEndian.AppendUint32(b, at.Era)
		b = binary.AppendUvarint(b, at.Index)
		b = binary.AppendUvarint(b, uint64(at.Number+1)) // 0 for a whole entry, which is short
	}
	return b
}

var errPlaces = errors.New("events: not the places of a reader")

// DecodePlaces is the inverse of Encode.
func DecodePlaces(b []byte) (Places, error) {
	p := Places{}
	for len(b) > 0 {
		shard, n := binary.Uvarint(b)
		if n <= 0 || len(b) < n+4 || len(p) == maxShards || shard > 1<<31 {
			return nil, errPlaces
		}
		era := binary.BigEndian.Uint32(b[n:])
		b = b[n+4:]
		index, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errPlaces
		}
		b = b[n:]
		number, n := binary.Uvarint(b)
		if n <= 0 || number > wholeEntry || era == 0 {
			return nil, errPlaces
		}
		b = b[n:]
		if _, twice := p[uint32(shard)]; twice {
			return nil, errPlaces
		}
		p[uint32(shard)] = Place{era, index, uint32(number) - 1}
	}
	return p, nil
}
