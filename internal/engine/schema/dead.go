package schema

// EncodeDead returns the row of a task in the index of the dead.
func (x *Exec) EncodeDead() []byte {
	f := Encoding(make([]byte, 0, 16+len(x.Type)))
	deadFields(&f, &x.Print, &x.Type)
	return f.Row()
}

// DecodeDead decodes the row of a task in the index of the dead. Rows of earlier releases may lack the fingerprint or the type.
func DecodeDead(row []byte) (print uint64, typ string, err error) {
	if len(row) == 0 {
		return 0, "", nil
	}
	f := Decoding(row)
	for f.Next() {
		deadFields(&f, &print, &typ)
	}
	return print, typ, f.Err()
}

func deadFields(f *Fields, print *uint64, typ *string) {
	Num(f, 1, print)
	f.Text(2, typ)
}
