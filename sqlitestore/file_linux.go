package sqlitestore

import (
	"os"
	"slices"
	"strings"
	"syscall"
)

// networks are the file systems that are refused, by the magic number of
// statfs. FUSE can be a local disk: see refuseFuse.
var networks = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xfe534d42: "SMB2",
	0xff534d42: "CIFS",
	0x01021997: "9p",
	0x5346414f: "AFS",
	0x6b414653: "kAFS",
	0x73757245: "Coda",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0x47504653: "GPFS",
}

func refuseNetwork(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return nil // what is wrong with dir shows when the file is opened
	}
	if kind, ok := networks[uint32(st.Type)]; ok {
		return networkError(dir, kind)
	}
	return refuseFuse(dir, uint32(st.Type))
}

// hasRoom reports whether the disk of dir has n bytes left for us.
func hasRoom(dir string, n uint64) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) != nil || st.Bavail*uint64(st.Bsize) >= n
}

const fuseMagic = 0x65735546

// refuseFuse refuses the network file systems among those in user space; only
// the table of mounts names them.
func refuseFuse(dir string, magic uint32) error {
	if magic != fuseMagic {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	if kind := fuseKind(dir, string(mounts)); kind != "" {
		return networkError(dir, kind)
	}
	return nil
}

// fuseNetworks are types of mounts that reach other machines.
var fuseNetworks = []string{"fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.davfs", "fuse.curlftpfs"}

// fuseKind returns the type of the mount that dir lies on, if it is one of
// fuseNetworks.
func fuseKind(dir, mounts string) string {
	longest, kind := "", ""
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		point := strings.TrimSuffix(fields[1], "/")
		if (dir == point || strings.HasPrefix(dir, point+"/")) && len(point) >= len(longest) {
			longest, kind = point, fields[2]
		}
	}
	if slices.Contains(fuseNetworks, kind) {
		return kind
	}
	return ""
}
