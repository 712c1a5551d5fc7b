package listen

import "golang.org/x/sys/unix"

// peerUID is the user that the kernel names as the other end of a unix socket.
func peerUID(fd int) (int, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}
