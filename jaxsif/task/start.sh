#!/bin/sh
# The parent of the user's program in the container: it waits for the program, and reports how it
# ended.
#
#   start.sh COMMAND [ARGUMENT...]
#
# A shell script, because a shell starts in a millisecond and every image has one. It reports to
# `jaxsif run` in lines on standard error (jaxsif/task/contract.py) that begin with a nonce; without
# JAXSIF_REPORT it is silent.

here=${0%/*}
task=${SLURM_PROCID:-0}
# NONCE:NONCE. Only this script has the first one, and reports with it how the program ended; the
# program gets the second.
nonce=${JAXSIF_REPORT%%:*}
[ -z "$nonce" ] || JAXSIF_REPORT=${JAXSIF_REPORT#*:}
unset JAXSIF_DRAINS JAXSIF_STARTER # set in a program that runs jaxsif
[ -z "$nonce" ] || export JAXSIF_STARTER=$$

# 3 is the program's standard error. The shell's own is closed: it would print 'Terminated' in every
# task when a step is ended.
exec 3>&2 2>/dev/null

report() { # JSON fields
    [ -n "$nonce" ] || return 0
    printf '\036jaxsif %s {"task": %s, "node": "%s", %s}\n' "$nonce" "$task" \
        "${SLURMD_NODENAME-}" "$1" >&3
}

# The run's certificate with its key goes into an unnamed pipe, like the one below, and is removed
# from the environment, which programs print. A Python finds it by the path
# (jaxsif/task/credentials.py).
credentials=${JAXSIF_CREDENTIALS-}
unset JAXSIF_CREDENTIALS
case $credentials in
    *,*) # otherwise it is the path of a run around this one
        exec 6<<END
$credentials
END
        export JAXSIF_CREDENTIALS=/proc/$$/fd/6
        ;;
esac

# The requirements of the fabric profile (jaxsif/settings/fabric.py) on each node: patterns, which
# the shell expands to paths.
for path in ${JAXSIF_FABRIC_NEEDS-}; do
    [ ! -e "$path" ] || continue
    lack="no $path on this node, which the fabric $JAXSIF_FABRIC needs"
    hint="pass another --fabric, such as tcp, or --exclude=NODE; see jaxsif config profile.$JAXSIF_FABRIC"
    report '"event": "lacking", "text": "'"$lack"'", "hint": "'"$hint"'"'
    [ -n "$nonce" ] || echo "jaxsif: error: $lack" >&3
    exit 125
done
# Before the image's own: the site's libraries are made for its network.
if [ -n "${JAXSIF_FABRIC_LIBRARIES-}" ]; then
    export LD_LIBRARY_PATH="$JAXSIF_FABRIC_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

# The terminal of srun --unbuffered has no size, and then some progress bars have none.
size_terminal() {
    [ "$(stty size)" != '0 0' ] || stty columns "$COLUMNS" rows "${LINES:-24}"
}
if [ -t 1 ] && [ -n "${COLUMNS-}" ]; then size_terminal <&1; fi

# jaxsif's own images load the task package by themselves.
if [ ! -e /opt/jaxsif/image ]; then
    export PYTHONPATH="$here/site${PYTHONPATH:+:$PYTHONPATH}"
fi

# The step's number and its nodes: `jaxsif run` may have to end it with scancel, or inspect it.
if [ "$task" = 0 ]; then
    nodes=${SLURM_STEP_NODELIST-}
    while [ "${#nodes}" -gt 600 ]; do # srun --label cuts longer lines
        begin=$(printf %.600s "$nodes")
        nodes=${nodes#"$begin"}
        report '"event": "nodes", "nodes": "'"$begin"'"'
    done
    report '"event": "started", "step": "'"${SLURM_JOB_ID-}.${SLURM_STEP_ID-}"'", "nodes": "'"$nodes"'"'
elif [ "${SLURM_LOCALID-}" = 0 ]; then
    report '"event": "ready"' # this node's container works, too
fi

warn() { # TEXT, without quotes; reported once on each node, and shown once by `jaxsif run`
    [ "${SLURM_LOCALID:-0}" != 0 ] || report '"event": "warning", "text": "'"$1"'"'
}

# Paths of the host that do not exist in the container: the rules "if there" in
# jaxsif/container/environment.py.
for name in TMPDIR TMP TEMP SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE \
    XDG_RUNTIME_DIR XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME; do
    eval "path=\${$name-}"
    if [ -n "$path" ] && [ ! -e "$path" ]; then
        unset "$name"
        case $name in
            XDG_*) ;;
            *) warn "$name names a path that is not in the container, and is ignored" ;;
        esac
    fi
done
# shellcheck disable=SC3067 # -O is not in POSIX, but in dash, bash and busybox
if [ -n "${JAXSIF_CACHE-}" ] &&
    ! { [ -O "$JAX_COMPILATION_CACHE_DIR" ] && [ -w "$JAX_COMPILATION_CACHE_DIR" ]; }; then
    # JAX would create it writable for everybody; or somebody with write access above it has
    # replaced it.
    unset JAX_COMPILATION_CACHE_DIR
    warn "the compile cache is not on this node, or not writable there: see --compile-cache-folder"
fi

# An unnamed pipe: that of a short here-document. Python writes its threads' stacks to 7 when a
# signal such as JAX's SIGABRT ends it (jaxsif/task/failure.py), and find_line reads them from 8.
if [ -n "$nonce" ]; then
    exec 8<<END
begin
END
    # `command` keeps the shell alive if there is no /proc
    if command exec 7>/proc/self/fd/8; then export JAXSIF_CRASH=7; fi
fi

# Sets `where` to FILE:LINE of the program's own code: of the thread that crashed, also in `crashed`,
# or else of the main thread, which is last. Sets `box` to the program's state a moment before
# (jaxsif/task/watch/status_file.py).
find_line() {
    LC_ALL=C # so that `case` matches bytes
    printf ' cut\nend\n' >&7 || return # after half a line, if the pipe was full
    while read -r line <&8 && [ "$line" != end ]; do
        case $line in
            'Fatal Python error: '*) crashed='' where='' ;; # earlier stacks were not from the end
            'Box '*[!\ -~]* | 'Box '*[\\\"]*) ;; # not fit for a report
            'Box '*) box=${line#Box } ;;
            'Thread 0x'*) where='' current= ;;
            'Current thread 0x'*) crashed='' where='' current=1 ;;
            ...) where='' ;; # there are more threads, and the main thread is not shown
            'File "'*'", line '[0-9]*) # not '???', as where a call begins
                file=${line#File \"} number=${line##*\", line }
                file=${file%%\", line *}
                case $file in
                    "$here"/* | '<frozen '* | *[\\\"]*) continue ;;
                    */site-packages/* | */dist-packages/*)
                        module=${file#*-packages/} # of the user's own, if in a layer of a project
                        [ -e "/opt/jaxsif/own/${module%%/*}" ] || continue
                        ;;
                    */lib/python3*) continue ;;
                esac
                case $where,$file in
                    ,* | '<'*,[!\<]*) # generated code, such as <string>, gives way to a caller
                        where=$file:${number%% *}
                        ;;
                esac
                [ -z "$current" ] || crashed=$where
                ;;
        esac
    done
    where=${crashed:-$where}
}

# For --log-dir, tee copies what the program prints into the task's files, to the last word: signals
# are for the program.
copies=''
copy() { # STREAM
    (
        trap '' HUP INT QUIT TERM USR1 USR2
        exec tee -a "$log.$1" <"$pipes/$1" 6>&- 7>&- 8<&- 9>&-
    ) &
    copies="$copies $!"
}
start_copies() {
    log=${JAXSIF_TASK_LOG%%%t*}$task${JAXSIF_TASK_LOG##*%t}
    unset JAXSIF_TASK_LOG
    pipes=$(mktemp -d) && mkfifo "$pipes/out" "$pipes/err" || return
    copy out
    copy err >&3
    exec 4>"$pipes/out" 5>"$pipes/err"
    rm -r "$pipes"
}
exec 4>&1 5>&3
[ -z "${JAXSIF_TASK_LOG-}" ] || start_copies ||
    report '"event": "warning", "text": "no log files: cannot make pipes in the folder for scratch files"'

# The keeper of jaxsif/node/share.py is a child of the first task.
children=''
list_children() { read -r children </proc/$$/task/$$/children; }
list_children
keeper=$children

# Whether process $1 was started in this task: Slurm may put all tasks of a step on a node into one
# process group. No shell reads the zero bytes between variables.
is_of_task() {
    while read -r line || [ -n "$line" ]; do
        case $line in
            *"SLURM_TASK_PID=$PPID"[!0-9]* | *"SLURM_TASK_PID=$PPID") return 0 ;;
        esac
    done <"/proc/$1/environ"
    return 1
}

# Sets `left` to the processes of the program whose parents have ended. share.py has made them
# children of this process; in a container for only this task, the runtime prevents that.
list_left() {
    left=''
    list_children
    for pid in $children; do
        case " $keeper " in *" $pid "*) ;; *) left="$left $pid" ;; esac
    done
    [ "${SLURM_TASK_PID-}" = "$PPID" ] || return 0
    read -r line </proc/$$/stat
    group=${line##*) ? } group=${group#* } # after the name, the state and the parent
    for file in /proc/[0-9]*/stat; do
        read -r line <"$file" || continue
        case ${line##*) ? } in
            "1 ${group%% *} "*)
                pid=${file%/stat} pid=${pid#/proc/}
                ! is_of_task "$pid" || left="$left $pid"
                ;;
        esac
    done
}

# Slurm waits a minute for a process that holds the output of a failed task open. Signal 0 gives
# those that end on their own, such as tee, a moment.
end_left() {
    for signal in 0 TERM KILL KILL; do
        list_left
        [ -n "$left" ] || return 0
        # shellcheck disable=SC2086 # words
        kill -s "$signal" $left
        sleep 0.2
    done
}

# A process that the program has left behind, with a pipe still open, must not hold up the task.
end_copies() {
    exec 4>&- 5>&-
    lost='' deadline=''
    list_left
    if [ -n "$left" ]; then
        # shellcheck disable=SC2086 # words
        (sleep 2 && kill -s KILL $copies) >&- 3>&- 7>&- 8<&- 9>&- &
        deadline=$!
    fi
    for pid in $copies; do
        wait "$pid"
        code=$?
        while [ "$code" -gt 128 ] && kill -s 0 "$pid"; do # a signal has ended the wait
            wait "$pid"
            code=$?
        done
        [ "$code" = 0 ] || lost=1
    done
    [ -z "$deadline" ] || kill "$deadline"
    [ -z "$lost" ] || report '"event": "warning", "text": "not all output is in the files of --log-dir"'
}

# Whether the image's files can no longer be read: the process that mounts them has ended.
has_lost_image() {
    [ -n "${APPTAINER_CONTAINER-}${SINGULARITY_CONTAINER-}" ] || return 1
    set -- /.singularity.d/*
    [ "$*" = '/.singularity.d/*' ]
}

# Whether Slurm signals only its own child, which is this process or its parent, and not the program:
# so it does by default where it tracks processes by cgroups. Where it signals all of them, and the
# step has a cgroup for another reason, the program gets a signal twice.
is_signalled_alone() {
    case " $$ $PPID " in *" ${SLURM_TASK_PID:-none} "*) ;; *) return 1 ;; esac
    while read -r line; do
        case $line in *:freezer:*/step_* | 0::*/step_*) return 0 ;; esac
    done </proc/self/cgroup
    return 1
}

# A shell has its background processes ignore two signals, and only `env` can undo that.
can_restore() { env --default-signal=INT,QUIT >/dev/null; }

pass_on() { # SIGNAL...
    for signal; do
        # shellcheck disable=SC2064 # now
        trap "signalled=1; kill -s $signal $program" "$signal"
    done
}

# Run the program in the background, where a signal ends `wait`, and pass signals on.
run_and_signal() { # COMMAND [ARGUMENT...]
    exec 1<&0 # a background process has /dev/null for 0
    # The second shell executes what `env` would not, or would take for a script.
    env --default-signal=INT,QUIT /bin/sh -c 'exec "$@"' sh "$@" \
        <&1 >&4 2>&5 3>&- 4>&- 5>&- 6>&- 8<&- 9>&- &
    program=$! signalled=''
    pass_on HUP USR1 USR2 URG
    # shellcheck disable=SC2064 # now; a stopped program would not end
    trap "signalled=1; kill -s TERM $program; kill -s CONT $program" TERM
    trap signalled=1 INT QUIT # a terminal signals both; the program may go on
    [ -t 0 ] || pass_on INT QUIT
    wait "$program"
    status=$?
    while [ -n "$signalled" ]; do
        signalled=''
        wait "$program"
        code=$?
        [ "$code" = 127 ] || status=$code # 127: it had ended
    done
}

# Survive the signals that are meant for the program (a handler, unlike ignoring, is not inherited).
trap : HUP INT QUIT TERM USR1 USR2
if is_signalled_alone && can_restore; then
    run_and_signal "$@"
else
    (exec "$@" >&4 2>&5 3>&- 4>&- 5>&- 6>&- 8<&- 9>&-) # 9: open while this task lives, for jaxsif/node/share.py
    status=$?
fi

# When a neighbour has died, JAX ends this process with SIGABRT: let the neighbour report first.
[ "$status" -ne 134 ] || sleep 0.5
where='' box='' crashed=''
[ -z "${JAXSIF_CRASH-}" ] || [ "$status" = 0 ] || find_line
case $status,$crashed in
    134,?*) crashed=true ;;
    *) crashed=false ;;
esac
[ "$status" -gt 128 ] || where='' # no signal ended it there
[ "${#where}" -le 600 ] || where='' # srun --label cuts longer lines
[ "${#box}" -le 240 ] || box=''
[ "$status" = 0 ] || ! has_lost_image || report '"event": "unmounted"'
report '"event": "exit", "status": '"$status"', "where": "'"$where"'", "box": "'"$box"'", "crashed": '"$crashed"
[ "$status" = 0 ] || end_left
[ -z "$copies" ] || end_copies
exit "$status"
