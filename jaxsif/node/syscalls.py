"""The names of the system calls in which a process can wait, see syscalls(2)."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping

# Name, number on x86_64, number on aarch64; '-' if there is none.
_TABLE = """
read 0 63; write 1 64; open 2 -; close 3 57; poll 7 -; mmap 9 222; munmap 11 215;
madvise 28 233; ioctl 16 29; pread64 17 67; pwrite64 18 68; readv 19 65; writev 20 66;
preadv 295 69; pwritev 296 70; select 23 -; pselect6 270 72; ppoll 271 73; epoll_wait 232 -;
epoll_pwait 281 22; epoll_pwait2 441 441; pause 34 -; nanosleep 35 101;
clock_nanosleep 230 115; sched_yield 24 124; sendfile 40 71; splice 275 76;
copy_file_range 326 285; connect 42 203; accept 43 202; accept4 288 242; sendto 44 206;
recvfrom 45 207; sendmsg 46 211; recvmsg 47 212; sendmmsg 307 269; recvmmsg 299 243;
wait4 61 260; waitid 247 95; flock 73 32; fcntl 72 25; fsync 74 82; fdatasync 75 83;
sync 162 81; syncfs 306 267; msync 26 227; stat 4 -; fstat 5 80; lstat 6 -; newfstatat 262 79;
statx 332 291; openat 257 56; getdents64 217 61; ftruncate 77 46; fallocate 285 47;
rename 82 -; renameat 264 38; renameat2 316 276; unlink 87 -; unlinkat 263 35; mkdir 83 -;
mkdirat 258 34; futex 202 98; futex_wait 455 455; futex_waitv 449 449; rt_sigtimedwait 128 137;
rt_sigsuspend 130 133; restart_syscall 219 128; semop 65 193; semtimedop 220 192; msgrcv 70 188;
mq_timedreceive 243 183; io_getevents 208 4; io_uring_enter 426 426
"""
_COLUMNS = {"x86_64": 1, "aarch64": 2}  # by the name of the machine, as uname -m prints it
# Calls whose first argument is a descriptor.
OF_A_DESCRIPTOR = re.compile(
    r"(read|write|close|ioctl|p(read|write)(64|v)|readv|writev|epoll_p?wait2?|sendfile|splice"
    r"|copy_file_range|connect|accept4?|(send|recv)m?msg|sendto|recvfrom|flock|fcntl|f(data)?sync"
    r"|syncfs|fstat|getdents64|ftruncate|fallocate)\Z"
)
# Calls whose first argument is the address of a list that begins with a descriptor.
OF_A_LIST = ("poll", "ppoll")
# Continues another call after a stop.
RESTARTED = "restart_syscall"


def list_names(machine: str) -> Mapping[int, str]:
    """Return the name of each number on this kind of machine, or {} for an unknown kind."""
    column = _COLUMNS.get(machine)
    if column is None:
        return {}
    rows = (entry.split() for entry in _TABLE.split(";"))
    return {int(row[column]): row[0] for row in rows if row[column] != "-"}


_NAMES = list_names(platform.machine())


def name_call(number: int) -> str:
    """Return the name of a system call on this machine, such as 'futex', or 'call 999' if it is not
    in the table.
    """
    return _NAMES.get(number, f"call {number}")
