# SPDX-License-Identifier: GPL-2.0
"""Parts that the benches of disks share, emulated and native."""

import pathlib
import time

# A target of nvme-tcp over /dev/ramN; to be run where it listens.
NVMET = """set -e
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/ram ports/1 && mkdir subsystems/ram/namespaces/1
echo 1 > subsystems/ram/attr_allow_any_host
echo -n {ram} > subsystems/ram/namespaces/1/device_path
echo 1 > subsystems/ram/namespaces/1/enable
echo ipv4 > ports/1/addr_adrfam; echo tcp > ports/1/addr_trtype
echo 4420 > ports/1/addr_trsvcid; echo 10.0.0.2 > ports/1/addr_traddr
ln -s /sys/kernel/config/nvmet/subsystems/ram ports/1/subsystems/ram
"""
# A host that has nvme-cli installed has these two in /etc/nvme.
NVME_CONNECT = """set -e
modprobe nvme-tcp
id=$(cat /proc/sys/kernel/random/uuid)
nvme connect -t tcp -a 10.0.0.2 -s 4420 -n ram --hostid=$id --hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id
until test -b /dev/nvme0n1; do sleep 0.1; done
"""


def done_ios(machine, device):
    """I/Os the device has ended since it was attached; of a RAM disk, which keeps no count: the blocks of 4 KiB that
    all disks were asked for, so let no other be in use."""
    if pathlib.PurePath(device).name.startswith("ram"):
        paged = dict(line.split() for line in machine.read("/proc/vmstat").splitlines())
        return (int(paged["pgpgin"]) + int(paged["pgpgout"])) // 4
    words = machine.read(f"/sys/block/{pathlib.PurePath(device).name}/stat").split()
    return int(words[0]) + int(words[4])


def cpu_per_io(machines, device, seconds):
    """CPU microseconds of each machine, the load on the first included, per I/O of a load under way."""
    def now():
        return done_ios(machines[0], device), [machine.cpu_s() for machine in machines]
    before_ios, before_s = now()
    time.sleep(seconds)
    after_ios, after_s = now()
    return [(after - before) * 1e6 / max(after_ios - before_ios, 1) for before, after in zip(before_s, after_s)]
