#!/bin/sh
# The parent of the user's program in the container: it waits, and reports how the program ended.
#
#   start.sh COMMAND [ARGUMENT...]
#
# A shell, because it starts in a millisecond and every image has one. It speaks to `jaxsif run` in
# lines on standard error (jaxsif/task/contract.py) that begin with a nonce; without JAXSIF_REPORT
# it is silent.

here=${0%/*}
task=${SLURM_PROCID:-0}
# NONCE:NONCE. The first one is of this script alone, which tells how the program ended; the program
# gets the second.
nonce=${JAXSIF_REPORT%%:*}
[ -z "$nonce" ] || JAXSIF_REPORT=${JAXSIF_REPORT#*:}
unset JAXSIF_DRAINS JAXSIF_STARTER # of a program that runs jaxsif
[ -z "$nonce" ] || export JAXSIF_STARTER=$$

# 3 is the program's standard error. The shell's own is closed: it would print 'Terminated' in every
# task of a step that ends.
exec 3>&2 2>/dev/null

report() { # JSON fields
    [ -n "$nonce" ] || return 0
    printf '\036jaxsif %s {"task": %s, "node": "%s", %s}\n' "$nonce" "$task" \
        "${SLURMD_NODENAME-}" "$1" >&3
}

refuse() { # TEXT
    report '"event": "refused", "text": "'"$1"'"'
    [ -n "$nonce" ] || echo "jaxsif: error: $1" >&3
    exit 125
}

# The run's certificate with its key goes into a pipe without a name, as below, and out of the
# environment, which programs print. A Python finds it by the path (jaxsif/task/credentials.py).
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

# What the profile of the fabric (jaxsif/settings/fabric.py) wants on each node: patterns, which the
# shell replaces by paths.
for path in ${JAXSIF_FABRIC_NEEDS-}; do
    [ -e "$path" ] || refuse "no $path on this node, which the fabric $JAXSIF_FABRIC needs"
done
# Before the image's own: those of the site are made for its network.
if [ -n "${JAXSIF_FABRIC_LIBRARIES-}" ]; then
    export LD_LIBRARY_PATH="$JAXSIF_FABRIC_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

# That of srun --unbuffered has no size, and some progress bars none then.
size_terminal() {
    [ "$(stty size)" != '0 0' ] || stty columns "$COLUMNS" rows "${LINES:-24}"
}
if [ -t 1 ] && [ -n "${COLUMNS-}" ]; then size_terminal <&1; fi

# jaxsif's own images load the task package by themselves.
if [ ! -e /opt/jaxsif/image ]; then
    export PYTHONPATH="$here/site${PYTHONPATH:+:$PYTHONPATH}"
fi

# The step's number and its nodes: `jaxsif run` may have to end it by scancel, or to look into it.
if [ "$task" = 0 ]; then
    nodes=${SLURM_STEP_NODELIST-}
    while [ "${#nodes}" -gt 600 ]; do # srun --label cuts longer lines
        begin=$(printf %.600s "$nodes")
        nodes=${nodes#"$begin"}
        report '"event": "nodes", "nodes": "'"$begin"'"'
    done
    report '"event": "started", "step": "'"${SLURM_JOB_ID-}.${SLURM_STEP_ID-}"'", "nodes": "'"$nodes"'"'
elif [ "${SLURM_LOCALID-}" = 0 ]; then
    report '"event": "ready"' # of this node: its container works, too
fi

warn() { # TEXT, without quotes; once on each node, and `jaxsif run` shows it once
    [ "${SLURM_LOCALID:-0}" != 0 ] || report '"event": "warning", "text": "'"$1"'"'
}

# Paths of the host that are not there in the container: the rules "if there" of
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
    # JAX would make it, and for all to write; or somebody who can write above it has put another
    # one there.
    unset JAX_COMPILATION_CACHE_DIR
    warn "the compile cache is not on this node, see --compile-cache-folder"
fi

# A pipe without a name, that of a short here-document. Into 7, Python writes what its threads were
# at when a signal like JAX's SIGABRT ends it (jaxsif/task/failure.py), and find_line reads it from
# 8.
if [ -n "$nonce" ]; then
    exec 8<<END
begin
END
    # `command` keeps the shell alive where there is no /proc
    if command exec 7>/proc/self/fd/8; then export JAXSIF_CRASH=7; fi
fi

# Sets `where` to FILE:LINE of the program's own code: of the thread that crashed, or else of the
# main one, the last. Sets `box` to what the program did a moment before (jaxsif/task/watch/status_file.py).
find_line() {
    crashed=''
    LC_ALL=C # in a case, bytes
    printf ' cut\nend\n' >&7 || return # behind half a line, if it was full
    while read -r line <&8 && [ "$line" != end ]; do
        case $line in
            'Fatal Python error: '*) crashed='' where='' ;; # what was before has ended nothing
            'Box '*[!\ -~]* | 'Box '*[\\\"]*) ;; # no text for a report
            'Box '*) box=${line#Box } ;;
            'Thread 0x'*) where='' current= ;;
            'Current thread 0x'*) crashed='' where='' current=1 ;;
            ...) where='' ;; # there are more threads, and the main one is not shown
            'File "'*'", line '*)
                file=${line#File \"} number=${line##*\", line }
                file=${file%%\", line *}
                case $file in
                    */site-packages/* | */dist-packages/* | */lib/python3*) continue ;;
                    "$here"/* | '<frozen '* | *[\\\"]*) continue ;;
                esac
                where=${where:-$file:${number%% *}}
                [ -z "$current" ] || crashed=${crashed:-$where}
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

# Whether process $1 was started in this task: Slurm may give all tasks of a step on a node one
# process group. No shell reads the zeros between variables.
is_of_task() {
    while read -r line || [ -n "$line" ]; do
        case $line in
            *"SLURM_TASK_PID=$PPID"[!0-9]* | *"SLURM_TASK_PID=$PPID") return 0 ;;
        esac
    done <"/proc/$1/environ"
    return 1
}

# Sets `left` to the processes of the program whose parents have ended. share.py has made them
# children of this one; in a container of the task's own, the runtime prevents that.
list_left() {
    left=''
    list_children
    for pid in $children; do
        case " $keeper " in *" $pid "*) ;; *) left="$left $pid" ;; esac
    done
    [ "${SLURM_TASK_PID-}" = "$PPID" ] || return 0
    read -r line </proc/$$/stat
    group=${line##*) ? } group=${group#* } # behind the name, the state and the parent
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

# Slurm waits a minute for a process that holds the output of a failed task open. One that ends by
# itself, as tee does, has its moment.
end_left() {
    for signal in 0 TERM KILL KILL; do
        list_left
        [ -n "$left" ] || return 0
        # shellcheck disable=SC2086 # words
        kill -s "$signal" $left
        sleep 0.2
    done
}

# A process that the program has left behind, and that holds a pipe open, does not hold up the task.
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
        code=129
        while [ "$code" -gt 128 ] && kill -s 0 "$pid"; do # a signal ends the wait, too
            wait "$pid"
            code=$?
        done
        [ "$code" = 0 ] || lost=1
    done
    [ -z "$deadline" ] || kill "$deadline"
    [ -z "$lost" ] || report '"event": "warning", "text": "not all output is in the files of --log-dir"'
}

# Whether the image's files can be read no more: what mounts them has ended.
has_lost_image() {
    [ -n "${APPTAINER_CONTAINER-}${SINGULARITY_CONTAINER-}" ] || return 1
    set -- /.singularity.d/*
    [ "$*" = '/.singularity.d/*' ]
}

# Survive the signals that are meant for the program (a handler, unlike ignoring, is not inherited).
trap : HUP INT QUIT TERM USR1 USR2
(exec "$@" >&4 2>&5 3>&- 4>&- 5>&- 6>&- 8<&- 9>&-) # 9: by it, jaxsif/node/share.py knows that this task lives
status=$?

# SIGABRT is how JAX ends a process whose neighbour died: let the neighbour speak first.
[ "$status" -ne 134 ] || sleep 0.5
where='' box=''
[ -z "${JAXSIF_CRASH-}" ] || [ "$status" = 0 ] || find_line
[ "$status" -gt 128 ] || where='' # no signal has ended it there
[ "${#where}" -le 600 ] || where='' # srun --label cuts longer lines
[ "${#box}" -le 240 ] || box=''
[ "$status" = 0 ] || ! has_lost_image || report '"event": "unmounted"'
report '"event": "exit", "status": '"$status"', "where": "'"$where"'", "box": "'"$box"'"'
[ "$status" = 0 ] || end_left
[ -z "$copies" ] || end_copies
exit "$status"
