package wire

import (
	"bytes"
	"encoding/binary"
)

// demux takes the bytes of one direction of a session apart, by hand: it knows of yamux what its specification says.
type demux struct {
	pending []byte
	streams map[uint32]*bytes.Buffer
	tell    func(stream uint32, f frame)
}

func (m *demux) Write(b []byte) (int, error) {
	m.pending = append(m.pending, b...)
	for len(m.pending) >= yamuxHeader {
		body := 0
		if m.pending[1] == 0 { // data
			body = int(binary.BigEndian.Uint32(m.pending[8:]))
		}
		if len(m.pending) < yamuxHeader+body {
			break
		}
		if body > 0 {
			m.data(binary.BigEndian.Uint32(m.pending[4:]), m.pending[yamuxHeader:yamuxHeader+body])
		}
		m.pending = m.pending[yamuxHeader+body:]
	}
	return len(b), nil
}

// data takes the frames of a stream apart. Messages in parts are not what it is for.
func (m *demux) data(stream uint32, b []byte) {
	if m.streams == nil {
		m.streams = map[uint32]*bytes.Buffer{}
	}
	if m.streams[stream] == nil {
		m.streams[stream] = new(bytes.Buffer)
	}
	buffer := m.streams[stream]
	buffer.Write(b)
	for buffer.Len() >= HeaderSize {
		have := buffer.Bytes()
		n := HeaderSize + int(binary.BigEndian.Uint32(have[1:]))
		if len(have) < n {
			return
		}
		f, err := newDecoder(bytes.NewReader(have[:n])).next()
		if err != nil {
			panic(err)
		}
		buffer.Next(n)
		m.tell(stream, f)
	}
}
