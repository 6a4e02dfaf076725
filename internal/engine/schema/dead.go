package schema

// DeadRow is the row of a task in the index of the dead.
type DeadRow struct {
	Fingerprint uint64 // as in Exec
	Type        string
}

// EncodeDead returns the row of a task in the index of the dead.
func (x *Exec) EncodeDead() []byte {
	return Encode(16+len(x.Type), &DeadRow{x.Fingerprint, x.Type}, (*DeadRow).fields)
}

// DecodeDead decodes the row of a task in the index of the dead. Rows of earlier releases may lack the fingerprint or the type.
func DecodeDead(row []byte) (d DeadRow, err error) {
	if len(row) == 0 {
		return d, nil
	}
	f := Decoding(row)
	for f.Next() {
		d.fields(&f)
	}
	return d, f.Err()
}

func (d *DeadRow) fields(f *Fields) {
	Num(f, 1, &d.Fingerprint)
	f.Text(2, &d.Type)
}
