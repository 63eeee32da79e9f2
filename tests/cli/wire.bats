#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# wire.bats - kvtool transfer-sim wire: two processes, and peers that lie or die

load common
load dumps

bs32=$kv/s260k/paged_bs32/packed_nhd.bf16.npy
sd=$kv/mamba2g4/tp1_SD/rank0.npy

exec_() { kvtool transfer-sim exec --no-sync -q "$@"; }
wire() { kvtool transfer-sim wire --no-sync -q "$@"; }

# refused STATUS TEXT MODE ARG...: nothing is printed or left, the sentence has TEXT
refused() {
	tells "$1" "$2" transfer-sim "${@:3}"
	only
}

@test "transfer-sim wire writes what exec writes" {
	exec_ --dst=tp=2,ids=random:9,block-size=32 --fill=33 -o 'e%r.h5' "$nhd"
	wire --dst=tp=2,ids=random:9,block-size=32 --fill=33 -o 'w%r.h5' "$nhd"
	cmp e0.h5 w0.h5
	cmp e1.h5 w1.h5
	wire --all-states --mamba-groups=4 -o m.npy "$kv"/mamba2g4/tp4_DS/*.npy "$sd"
	same_digest "$sd" m.npy
	# 421, 188 and 80 tokens, in 27, 12 and 5 blocks of 16
	exec_ --dst=ids=reverse,pool=64 -o base.h5 "$nhd"
	local option slots
	for option in --cached=64:497 --partial=whole:704 --uncompressed:689 --threads=2:689; do
		slots=${option#*:} option=${option%:*}
		exec_ -f "$option" -o e.h5 "$nhd" base.h5
		wire -f --json "$option" -o w.h5 "$nhd" base.h5 >report
		cmp e.h5 w.h5
		[ "$(jq '[.groups[].slots] | add' report)" = "$slots" ]
	done
	exec_ -f --uncompressed -o e.h5 "$nhd" base.h5
	run ! cmp -s e.h5 w.h5
	exec_ -f --all-states --mamba-groups=4 --dst=tp=1 --conv=ds -o e.h5 "$sd"
	wire -f --all-states --mamba-groups=4 --dst=tp=1 --conv=ds -o w.h5 "$sd"
	cmp e.h5 w.h5
	run -1 --separate-stderr kvtool transfer-sim wire --no-sync --corrupt-op=7 \
		-o bad.h5 "$nhd" "$bs32"
	said 'expected 0x'
}

# listening ARG...: starts a destination; sets pid and port
listening() {
	: >err
	was=
	kvtool transfer-sim wire --no-sync --listen=127.0.0.1:0 "$@" >out 2>err 3>&- &
	pid=$!
	until port=$(sed -n 's/^waiting at port //p' err) && [ -n "$port" ]; do
		kill -0 "$pid" || { cat err; return 1; }
		sleep 0.05
	done
}

# peer PYTHON: connects to the port and does that with the socket s
peer() {
	/usr/bin/python3 "$root/tests/wire_peer.py" "$port" "$1"
}

# early PYTHON: the same in the background, of one that is there before somebody listens:
# no time passes while it starts
early() {
	rm -f err ready
	/usr/bin/python3 "$root/tests/wire_peer.py" - "$1" 3>&- &
	until [ -e ready ]; do
		kill -0 $! || return 1
		sleep 0.01
	done
}

# over: the destination has ended; sets was
over() {
	[ -n "$was" ] || { was=0; wait "$pid" || was=$?; }
}

# ended STATUS TEXT: the destination has, with one sentence, and left nothing
ended() {
	over
	[ "$was" = "$1" ] || { echo "status $was"; cat err; return 1; }
	grep -q "$2" err || { cat err; return 1; }
	[ "$(grep -c '^kvtool' err)" = 1 ]
	rm out err
	only
}

@test "transfer-sim wire joins two shells" {
	listening -o w.npy "$nhd" "$bs32"
	wire --connect=127.0.0.1:"$port" "$nhd" "$bs32"
	wait "$pid"
	same_digest "$nhd" w.npy
}

@test "transfer-sim wire listens at a port that nobody has" {
	listening -o w.npy "$nhd" "$bs32"
	tells 5 "127.0.0.1:$port: Address already in use" transfer-sim wire --no-sync -o x.npy \
		--listen=127.0.0.1:"$port" "$nhd" "$bs32"
	[ ! -e x.npy ]
	wire --connect=127.0.0.1:"$port" "$nhd" "$bs32"
	wait "$pid"
	same_digest "$nhd" w.npy
}

@test "transfer-sim wire refuses a peer that plans something else" {
	listening -o w.npy "$nhd" "$bs32"
	tells 3 'has another plan' transfer-sim wire --connect=127.0.0.1:"$port" "$nhd" "$hnd"
	ended 3 'has another plan'
}

@test "transfer-sim wire and exec keep nothing of a source whose checksum is wrong" {
	/usr/bin/python3 -c '
import json, os, sys, numpy as np
os.mkdir("sound")
np.savez("sound/s.npz", kv=np.load(sys.argv[1] + ".npy"))
data = bytearray(open("sound/s.npz", "rb").read())
# the last byte of the data, in a block that nothing may be sent of
data[data.rindex(b"PK\1\2") - 1] ^= 4
open("s.npz", "wb").write(data)
side = json.load(open(sys.argv[1] + ".json"))
side["file"] = "s.npz"
side.pop("sample_crc32", None)
for path in "s.json", "sound/s.json":
    json.dump(side, open(path, "w"))' "${nhd%.npy}"
	tells 3 'member kv.npy is damaged' transfer-sim exec --no-sync -o e.npy s.npz "$bs32"
	# the destination has a sound copy, and so cannot tell
	listening -o w.npy sound/s.npz "$bs32"
	tells 3 'member kv.npy is damaged' transfer-sim wire --connect=127.0.0.1:"$port" s.npz \
		"$bs32"
	local status=0
	wait "$pid" || status=$?
	[ "$status" != 0 ]
	rm out err
	only s.npz s.json sound
}

# lies STATUS SENTENCE CODE: after the handshake a peer does this, and wire says that
lies() {
	listening -o w.npy "$nhd" "$bs32"
	peer 'meet(s); back(s); s.recv(64);'"$3"
	ended "$1" "$2"
}

@test "transfer-sim wire survives peers that lie, fall silent or die" {
	local hello='meet(s); back(s); s.recv(64);' wait='; rest(s)'
	lies 3 'not in the plan' \
		's.sendall(frame(3, struct.pack("<IIqqq", 0, 1, 0, 1 << 40, 4) + b"abcd"))'"$wait"
	lies 3 'a frame of type 99' "s.sendall(frame(99))$wait"
	lies 3 'a frame of type 3 with 4 bytes, expected 33 to' \
		's.sendall(frame(3, b"half"))'"$wait"
	lies 3 '5 ops in 33 bytes' \
		's.sendall(frame(3, struct.pack("<II", 0, 5) + bytes(25)))'"$wait"
	lies 3 'ops of rank 7, expected rank 0' \
		's.sendall(frame(3, struct.pack("<IIqqq", 7, 1, 0, 0, 1) + b"x"))'"$wait"
	lies 3 'bytes early' "s.sendall(frame(4))$wait"
	lies 4 'the peer gave up: too?large' \
		's.sendall(frame(5, struct.pack("<I", 4) + b"too\nlarge"))'"$wait"
	lies 5 'the peer is gone' 's.sendall(frame(3, b"x" * 99)[:50])'
	early "$hello"'rest(s)'
	listening --timeout=1 -o w.npy "$nhd" "$bs32"
	ended 5 'not through after 1000 ms: --timeout'
	listening --timeout=1 -o w.npy "$nhd" "$bs32"
	ended 5 'waiting for the source'
}

@test "transfer-sim wire serves no peer that asks for what is not there" {
	/usr/bin/python3 - "$root/tests" "$KVTOOL" "$nhd" "$bs32" <<-'END'
		import sys
		sys.path.insert(0, sys.argv.pop(1))
		from wire_peer import *
		asks = [((9, 0, 0, 1, 0, 1), 3), ((0, 4, 0, 1, 0, 1), 3),
		        ((0, 0, 0, 9, 0, 1), 3), ((0, 0, 0, 1, 1, 1), 3),
		        ((0, 0, 0, 1, 0, 1 << 30), 3), ((0, 0, 0, 1, 0, 1 << 60), 3)]
		for ask, status in asks:
		    server = socket.create_server(("127.0.0.1", 0))
		    p = subprocess.Popen([sys.argv[1], "transfer-sim", "wire",
		                          f"--connect=127.0.0.1:{server.getsockname()[1]}",
		                          *sys.argv[2:]], stderr=subprocess.PIPE, text=True)
		    s, _ = server.accept()
		    heard(s)
		    back(s)
		    s.sendall(frame(2, struct.pack("<6Q", *ask)))
		    said = p.communicate(timeout=120)[1]
		    assert p.returncode == status and "the peer requests" in said, (ask, p.returncode, said)
	END
}

@test "transfer-sim wire refuses a wrong command line" {
	refused 2 'expected tcp or ucx' wire --transport=smoke -o w.h5 "$nhd" "$hnd"
	refused 2 'expected HOST:PORT' wire --connect=7000 "$nhd" "$hnd"
	# no port of 16 bits: its lower half is another one
	refused 2 'expected HOST:PORT' wire --connect=127.0.0.1:65536 "$nhd" "$hnd"
	refused 2 'expected HOST:PORT' wire --listen=127.0.0.1:99999 --timeout=1 -o w.h5 \
		"$nhd" "$hnd"
	refused 2 'expected HOST:PORT' wire --connect=127.0.0.1:184467440737095516161 \
		"$nhd" "$hnd"
	refused 5 '127.0.0.1:65535: Connection refused' wire --timeout=1 \
		--connect=127.0.0.1:65535 "$nhd" "$hnd"
	refused 2 'expected one of them' wire --connect=a:1 --listen=b:2 "$nhd" "$hnd"
	refused 5 'refused' wire --timeout=1 --connect=127.0.0.1:1 "$nhd" "$hnd"
	refused 3 'expected all of them' wire -o w.h5 "$rank1" --dst=tp=1
}

# ---- strangers, secrets and deadlines -----------------------------------------

# strangers N: the destination said that it turned away so many
strangers() {
	over
	grep -q "^kvtool transfer-sim: $1 connection.* turned away" err || { cat err; return 1; }
	sed -i '/turned away/d' err
}

@test "transfer-sim wire turns strangers away and goes on listening" {
	listening --json --timeout=60 -o w.npy "$nhd" "$bs32"
	peer '
def stranger(first):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(first)
    return s
def answer(s):
    return s.makefile("rb").read()
silent = [stranger(b""), stranger(b"KVT2"), stranger(frame(NONCE, bytes(33))[:40])]
assert answer(stranger(b"GET / HTTP/1.1\r\n\r\n")) == b""
assert b"frame of type 1" in answer(stranger(frame(HELLO, bytes(8))))
assert answer(stranger(frame(OPS, b""))) == b""
assert b"has a secret" in answer(stranger(frame(NONCE, bytes([1] * 33))))
# one of version 1 hears of it in its own words
old = answer(stranger(b"KVT1" + struct.pack("<IQQ", 1, 8, 0)))
assert old[:8] == b"KVT1" + struct.pack("<I", 5) and b"version 1" in old, old
p = subprocess.run(["'"$KVTOOL"'", "transfer-sim", "wire", "--connect=127.0.0.1:" + sys.argv[1],
                    "'"$nhd"'", "'"$bs32"'"])
assert p.returncode == 0'
	wait "$pid"
	strangers 9
	[ "$(json 'o["strangers"]' <out)" = 9 ]
	same_digest "$nhd" w.npy
	early 'drip(s, frame(NONCE, bytes(33)))'
	listening --timeout=1 -o x.npy "$nhd" "$bs32"
	strangers 1
	rm -f w.*
	ended 5 'it did not come in 1000 ms: --timeout'
}

@test "transfer-sim wire hears the source in a crowd of strangers" {
	(umask 077; echo 'one secret' >one)
	local first
	# that say nothing, begin a frame, reach the point where only the secret helps, or
	# never stop talking after they were turned away
	for first in 'b""' 'frame(NONCE, bytes(33))[:7]' 'frame(NONCE, b"\1" + bytes(32))' \
			'b"GET / HTTP/1.1" * 9999'; do
		listening --timeout=60 --secret-file=one -f -o w.npy "$nhd" "$bs32"
		peer '
import resource, threading
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
most, held, over = min(6000, hard - 99), [], threading.Event()
def crowd():
    while not over.is_set() and len(held) < most:
        try:
            s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
            s.setblocking(False)
            held.append(s)
            s.send('"$first"')
        except OSError:
            pass
crowds = [threading.Thread(target=crowd) for i in range(3)]
for one in crowds:
    one.start()
while len(held) < most // 4:
    time.sleep(.01)
try:
    p = subprocess.run(["'"$KVTOOL"'", "transfer-sim", "wire", "--secret-file=one",
                        "--connect=127.0.0.1:" + sys.argv[1], "'"$nhd"'", "'"$bs32"'"])
finally:
    over.set()
assert p.returncode == 0, p
for one in crowds:
    one.join()'
		wait "$pid"
		same_digest "$nhd" w.npy
	done
}

@test "transfer-sim wire tells the second of two sources, and comes again where none tells" {
	(umask 077; echo 'one secret' >one)
	listening --secret-file=one --timeout=60 -o w.npy "$nhd" "$bs32"
	peer '
s.sendall(frame(NONCE, b"\1" + bytes(32)))
take(s)
p = subprocess.run(["'"$KVTOOL"'", "transfer-sim", "wire", "--secret-file=one",
                    "--connect=127.0.0.1:" + sys.argv[1], "'"$nhd"'", "'"$bs32"'"])
assert p.returncode == 0
kind, why = take(s)
assert kind == FAIL and b"another came first" in why, (kind, why)'
	wait "$pid"
	# twice no answer, then the meeting
	/usr/bin/python3 - "$root/tests" "$KVTOOL" "$nhd" "$bs32" <<-'END'
		import sys
		sys.path.insert(0, sys.argv.pop(1))
		from wire_peer import *
		server = socket.create_server(("127.0.0.1", 0))
		p = subprocess.Popen([sys.argv[1], "transfer-sim", "wire", "--secret-file=one",
		                      f"--connect=127.0.0.1:{server.getsockname()[1]}",
		                      *sys.argv[2:]], stderr=subprocess.PIPE, text=True)
		server.accept()[0].close()
		s, _ = server.accept()
		heard(s, b"one secret")
		s.close()
		s, _ = server.accept()
		take(s)
		s.sendall(frame(NONCE, bytes(33)))
		said = p.communicate(timeout=120)[1]
		assert p.returncode == 3 and "the other side has none" in said, (p.returncode, said)
	END
}

@test "transfer-sim wire moves with the secret, and only with it" {
	(umask 077; echo 'one secret' >one; printf 'one secret' >same; echo 'another' >other)
	listening --timeout=60 --secret-file=one -o w.npy "$nhd" "$bs32"
	run -3 --separate-stderr kvtool transfer-sim wire --connect=127.0.0.1:"$port" \
		--secret-file=other "$nhd" "$bs32"
	said 'another secret'
	run -3 --separate-stderr kvtool transfer-sim wire --connect=127.0.0.1:"$port" \
		"$nhd" "$bs32"
	said 'a secret is asked for'
	# neither the listener's proof nor one of another meeting is a source's
	peer '
for name, late in ((b"listener", b""), (b"source", b"another nonce")):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(frame(NONCE, bytes([1] * 33)))
    nonce = take(s)[1][1:]
    s.sendall(frame(PROOF, proof(b"one secret", b"kvtool wire 2: " + name,
                                 late.ljust(32) if late else nonce, bytes([1] * 32))))
    kind, why = take(s)
    assert kind == FAIL and b"another secret" in why, (kind, why)'
	wire --connect=127.0.0.1:"$port" --secret-file=same "$nhd" "$bs32"
	wait "$pid"
	strangers 5
	same_digest "$nhd" w.npy
	# the meeting as Python has it, and a peer that then plans something else
	listening --secret-file=one -f -o w.npy "$nhd" "$bs32"
	peer 'meet(s, b"one secret"); take(s); s.sendall(frame(HELLO, bytes(8))); s.recv(99)'
	rm -f w.* one same other
	ended 3 'has another plan'
}

@test "transfer-sim wire sends nothing to a listener that only reflects" {
	(umask 077; echo 'one secret' >one)
	/usr/bin/python3 - "$root/tests" "$KVTOOL" "$nhd" "$bs32" <<-'END'
		import sys
		sys.path.insert(0, sys.argv.pop(1))
		from wire_peer import *
		for nonces in ("own", "same"):
		    server = socket.create_server(("127.0.0.1", 0))
		    p = subprocess.Popen([sys.argv[1], "transfer-sim", "wire", "--secret-file=one",
		                          f"--connect=127.0.0.1:{server.getsockname()[1]}",
		                          *sys.argv[2:]], stderr=subprocess.PIPE, text=True)
		    s, _ = server.accept()
		    kind, nonce = take(s)
		    s.sendall(frame(kind, nonce if nonces == "same" else b"\1" + os.urandom(32)))
		    kind, reply = take(s)
		    assert kind == PROOF
		    s.sendall(frame(kind, reply))
		    said = p.communicate(timeout=120)[1]
		    assert p.returncode == 3 and "another secret" in said, (p.returncode, said)
	END
}

@test "transfer-sim wire demands a secret off the loopback interface" {
	refused 2 '--secret-file' wire --listen=0.0.0.0:0 -o w.h5 "$nhd" "$hnd"
	refused 2 '--secret-file' wire --listen='[::]:0' -o w.h5 "$nhd" "$hnd"
	refused 2 '--secret-file' wire --connect=192.0.2.1:7000 "$nhd" "$hnd"
	(umask 077; head -c 32 /dev/urandom >ours)
	listening --listen=0.0.0.0:0 --secret-file=ours -o w.npy "$nhd" "$bs32"
	wire --connect=127.0.0.1:"$port" --secret-file=ours "$nhd" "$bs32"
	wait "$pid"
	same_digest "$nhd" w.npy
}

@test "transfer-sim wire refuses a secret that is none" {
	(umask 077; : >empty; echo >line; head -c 4097 /dev/zero >long; head -c 4096 /dev/zero >most)
	echo open >open
	chmod 640 open
	for file in empty line; do
		run -3 --separate-stderr kvtool transfer-sim wire --secret-file=$file -o w.h5 \
			"$nhd" "$hnd"
		said "$file: empty"
	done
	run -3 --separate-stderr kvtool transfer-sim wire --secret-file=long -o w.h5 "$nhd" "$hnd"
	said 'more than 4096 bytes'
	run -3 --separate-stderr kvtool transfer-sim wire --secret-file=open -o w.h5 "$nhd" "$hnd"
	said 'mode 0640' 'chmod 600'
	run -5 --separate-stderr kvtool transfer-sim wire --secret-file=none -o w.h5 "$nhd" "$hnd"
	said 'none: No such file'
	only empty line long most open
	wire --secret-file=most -o w.h5 "$nhd" "$hnd"
}

@test "transfer-sim wire reads a secret from a regular file, without waiting" {
	mkfifo -m 600 fifo
	mkdir -m 700 folder
	for file in fifo folder /dev/zero <(echo piped); do
		run -3 --separate-stderr timeout 120 "$KVTOOL" transfer-sim wire \
			--timeout=1 --secret-file="$file" -o w.h5 "$nhd" "$hnd"
		one_sentence
		said "$file: no regular file"
	done
	only fifo folder
}

@test "transfer-sim wire refuses a secret that others may read or write, whoever owns it" {
	(umask 077; echo 'one secret' >one)
	local mode
	for mode in 640 604 660 606 620 602 666 644; do
		chmod $mode one
		run -3 --separate-stderr kvtool transfer-sim wire --secret-file=one -o w.h5 \
			"$nhd" "$hnd"
		one_sentence
		said "mode 0$mode" 'chmod 600'
	done
	[ "$(id -u)" = 0 ] || skip "the rest needs root, who may give files away"
	chown nobody one
	for mode in 604 660 606 620 602 666 644; do
		chmod $mode one
		run -3 --separate-stderr kvtool transfer-sim wire --secret-file=one -o w.h5 \
			"$nhd" "$hnd"
		one_sentence
		said "mode 0$mode" 'chmod 640'
	done
	only one
	# how a service is given one: by its group
	for mode in 400 600 440 640; do
		chmod $mode one
		wire -f --secret-file=one -o w.h5 "$nhd" "$hnd"
	done
}

@test "transfer-sim wire has deadlines that no byte moves" {
	local hello='meet(s); take(s);'
	early "$hello"'drip(s, frame(HELLO, bytes(8)))'
	listening --timeout=1 -o w.npy "$nhd" "$bs32"
	ended 5 'not through after 1000 ms: --timeout'
	early "$hello"'drip(s, frame(HELLO, bytes(8)))'
	listening --timeout=600 --deadline=1 -o w.npy "$nhd" "$bs32"
	ended 5 'the whole transfer is over: --deadline'
	# the source, which waits for a question, and one to whom nobody listens
	/usr/bin/python3 - "$root/tests" "$KVTOOL" "$nhd" "$bs32" <<-'END'
		import sys
		sys.path.insert(0, sys.argv.pop(1))
		from wire_peer import *
		for option, what in (("--timeout=1", "--timeout"), ("--deadline=1", "--deadline")):
		    server = socket.create_server(("127.0.0.1", 0))
		    p = subprocess.Popen([sys.argv[1], "transfer-sim", "wire", option,
		                          f"--connect=127.0.0.1:{server.getsockname()[1]}",
		                          *sys.argv[2:]], stderr=subprocess.PIPE, text=True)
		    s, _ = server.accept()
		    heard(s)
		    back(s)
		    drip(s, frame(ASK, bytes(48)))
		    said = p.communicate(timeout=120)[1]
		    assert p.returncode == 5 and what in said, (p.returncode, said)
	END
}

# ---- UCX ---------------------------------------------------------------------

# needs_ucx: skips where the program was built without
needs_ucx() {
	run --separate-stderr kvtool transfer-sim wire --transport=ucx --connect=7000 \
		"$nhd" "$hnd"
	[ "$status" != 4 ] || skip "built without UCX: this needs the package libucx-dev"
	[ "$status" = 2 ]
	export UCX_TLS=tcp,self,sm
}

@test "transfer-sim wire --transport=ucx is there, or says that it is not" {
	run kvtool transfer-sim wire --transport=ucx --connect=7000 "$nhd" "$hnd"
	if [ "$status" = 4 ]; then
		refused 4 'not in this build' wire --transport=ucx -o w.h5 "$nhd" "$hnd"
		return
	fi
	echo 'no library' >libucp.so.0
	LD_LIBRARY_PATH=. run -4 --separate-stderr kvtool transfer-sim wire \
		--transport=ucx -o w.h5 "$nhd" "$hnd"
	one_sentence
	said 'libucp.so.0'
	only libucp.so.0
}

# same_over TRANSPORTS: UCX moves over these what lies in t0.h5 and t1.h5
same_over() {
	UCX_TLS=$1 wire -f --transport=ucx --dst=tp=2,ids=random:9,block-size=32 \
		--fill=33 -o 'u%r.h5' "$nhd"
	cmp t0.h5 u0.h5
	cmp t1.h5 u1.h5
}

@test "transfer-sim wire --transport=ucx moves over TCP alone" {
	needs_ucx
	[ -e /sys/class/net ] || skip "this needs /sys, where UCX looks for networks"
	wire --dst=tp=2,ids=random:9,block-size=32 --fill=33 -o 't%r.h5' "$nhd"
	same_over tcp,self
}

@test "transfer-sim wire --transport=ucx moves what TCP moves" {
	needs_ucx
	wire --dst=tp=2,ids=random:9,block-size=32 --fill=33 -o 't%r.h5' "$nhd"
	for tls in sm,self tcp,self,sm; do
		same_over "$tls"
	done
	wire --transport=ucx --all-states --mamba-groups=4 -o m.npy \
		"$kv"/mamba2g4/tp4_DS/*.npy "$sd"
	same_digest "$sd" m.npy
	run -1 --separate-stderr kvtool transfer-sim wire --no-sync --transport=ucx \
		--corrupt-op=7 -o bad.h5 "$nhd" "$bs32"
	said 'expected 0x'
	listening --transport=ucx -o w.npy "$nhd" "$bs32"
	wire --transport=ucx --connect=127.0.0.1:"$port" "$nhd" "$bs32"
	wait "$pid"
	same_digest "$nhd" w.npy
}

@test "transfer-sim wire --transport=ucx refuses other peers" {
	needs_ucx
	listening -o w.npy "$nhd" "$bs32"
	run -3 --separate-stderr kvtool transfer-sim wire --connect=127.0.0.1:"$port" \
		--transport=ucx "$nhd" "$bs32"
	ended 3 'uses transport ucx'
	listening --transport=ucx -o w.npy "$nhd" "$bs32"
	run -3 --separate-stderr kvtool transfer-sim wire --connect=127.0.0.1:"$port" \
		"$nhd" "$bs32"
	ended 3 'does not use transport ucx'
	listening --transport=ucx -o w.npy "$nhd" "$bs32"
	run -3 --separate-stderr kvtool transfer-sim wire --connect=127.0.0.1:"$port" \
		--transport=ucx "$nhd" "$hnd"
	ended 3 'has another plan'
	listening --transport=ucx -o w.npy "$nhd" "$bs32"
	run -4 --separate-stderr kvtool transfer-sim wire --connect=127.0.0.1:"$port" \
		--transport=ucx --mem-limit=1k "$nhd" "$bs32"
	ended 4 'the peer gave up'
}

@test "transfer-sim wire --transport=ucx waits for nobody for ever" {
	needs_ucx
	# its own address: what it says comes back to it
	listening --transport=ucx -o w.npy "$nhd" "$bs32"
	peer 'meet(s); back(s); s.recv(9)'
	ended 3 'bytes early'
	# the address of one that does not listen there, and then the end of TCP, too
	for then in 'rest(s)' 's.close()'; do
		listening --timeout=60 --transport=ucx -o other.npy "$nhd" "$bs32"
		mv out other.out
		mv err other.err
		local other=$pid at=$port
		early 'o = socket.create_connection(("127.0.0.1", '"$at"'))
meet(o); meet(s)
s.sendall(frame(*take(o))); take(s)
'"$then"
		listening --timeout=1 --transport=ucx -o w.npy "$nhd" "$bs32"
		wait "$pid" || status=$?
		[ "$status" = 5 ] || { echo "status $status"; cat err; return 1; }
		[[ $then == s.close* ]] || grep -e '--timeout' err
		kill "$other" || true
		wait "$other" || true
		rm -f out err other.*
	done
}
