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
	run -"$1" --separate-stderr kvtool transfer-sim "${@:3}"
	[ -z "$output" ]
	one_sentence
	said "$2"
	only
}

@test "transfer-sim wire writes what exec writes" {
	exec_ --dst=tp=2,ids=random:9,block-size=32 --fill=33 -o 'e%r.h5' "$nhd"
	wire --dst=tp=2,ids=random:9,block-size=32 --fill=33 -o 'w%r.h5' "$nhd"
	cmp e0.h5 w0.h5
	cmp e1.h5 w1.h5
	wire --all-states --mamba-groups=4 -o m.npy $kv/mamba2g4/tp4_DS/*.npy "$sd"
	same_digest "$sd" m.npy
	run -1 --separate-stderr kvtool transfer-sim wire --no-sync --corrupt-op=7 \
		-o bad.h5 "$nhd" "$bs32"
	said 'expected 0x'
}

# listening ARG...: starts a destination; sets pid and port
listening() {
	: >err
	kvtool transfer-sim wire --no-sync --listen=127.0.0.1:0 "$@" >out 2>err 3>&- &
	pid=$!
	for _ in $(seq 100); do
		port=$(sed -n 's/^waiting at port //p' err)
		[ -z "$port" ] || return 0
		sleep 0.05
	done
	return 1
}

# peer PYTHON: connects to the port and does that with the socket s
peer() {
	/usr/bin/python3 -c '
import socket, struct, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def frame(t, p=b""): return b"KVT1" + struct.pack("<IQ", t, len(p)) + p
exec(sys.argv[2])' "$port" "$1"
}

# ended STATUS TEXT: the destination has, with one sentence, and left nothing
ended() {
	local status=0
	wait "$pid" || status=$?
	[ "$status" = "$1" ] || { echo "status $status"; cat err; return 1; }
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

@test "transfer-sim wire refuses a peer that plans something else" {
	listening -o w.npy "$nhd" "$bs32"
	run -3 --separate-stderr kvtool transfer-sim wire --connect=127.0.0.1:"$port" \
		"$nhd" "$hnd"
	said 'plans another transfer'
	ended 3 'plans another transfer'
}

@test "transfer-sim wire survives peers that lie, fall silent or die" {
	local hello='s.sendall(s.recv(24, socket.MSG_WAITALL)); s.recv(64);'
	listening -o w.npy "$nhd" "$bs32"
	peer 's.sendall(b"GET / HTTP/1.1\r\n\r\n"); time.sleep(.2)'
	ended 3 'does not speak this protocol'
	listening -o w.npy "$nhd" "$bs32"
	peer 's.sendall(b"KVT1" + struct.pack("<IQ", 3, 1 << 60)); time.sleep(.2)'
	ended 3 'expected 33 to'
	listening -o w.npy "$nhd" "$bs32"
	peer "$hello"'s.sendall(frame(3, struct.pack("<IIqqq", 0, 1, 0, 1 << 40, 4) + b"abcd"))
time.sleep(.2)'
	ended 3 'not in the plan'
	listening -o w.npy "$nhd" "$bs32"
	peer "$hello"'s.sendall(frame(4)); time.sleep(.2)'
	ended 3 'bytes early'
	listening -o w.npy "$nhd" "$bs32"
	peer "$hello"'s.sendall(frame(5, struct.pack("<I", 4) + b"too\nlarge")); time.sleep(.2)'
	ended 4 'the peer gave up: too?large'
	listening -o w.npy "$nhd" "$bs32"
	peer "$hello"'s.sendall(frame(3, b"x" * 99)[:50])'
	ended 5 'the peer is gone'
	listening --timeout=1 -o w.npy "$nhd" "$bs32"
	peer "$hello"'time.sleep(1.5)' 3>&- &
	ended 5 'nothing for 1000 ms'
	listening --timeout=1 -o w.npy "$nhd" "$bs32"
	ended 5 'waiting for the source'
}

@test "transfer-sim wire serves no peer that asks for what is not there" {
	/usr/bin/python3 - "$KVTOOL" "$nhd" "$bs32" <<-'END'
		import socket, struct, subprocess, sys
		def frame(t, p=b""): return b"KVT1" + struct.pack("<IQ", t, len(p)) + p
		asks = [((9, 0, 0, 1, 0, 1), 3), ((0, 4, 0, 1, 0, 1), 3),
		        ((0, 0, 0, 9, 0, 1), 3), ((0, 0, 0, 1, 1, 1), 3),
		        ((0, 0, 0, 1, 0, 1 << 30), 3), ((0, 0, 0, 1, 0, 1 << 60), 3)]
		for ask, status in asks:
		    server = socket.create_server(("127.0.0.1", 0))
		    p = subprocess.Popen([sys.argv[1], "transfer-sim", "wire",
		                          f"--connect=127.0.0.1:{server.getsockname()[1]}",
		                          *sys.argv[2:]], stderr=subprocess.PIPE, text=True)
		    s, _ = server.accept()
		    s.sendall(s.recv(24, socket.MSG_WAITALL))
		    s.sendall(frame(2, struct.pack("<6Q", *ask)))
		    said = p.communicate(timeout=20)[1]
		    assert p.returncode == status and "the peer asks" in said, (ask, p.returncode, said)
	END
}

@test "transfer-sim wire refuses a wrong command line" {
	refused 2 'expected tcp or ucx' wire --transport=smoke -o w.h5 "$nhd" "$hnd"
	refused 2 'expected HOST:PORT' wire --connect=7000 "$nhd" "$hnd"
	refused 2 'expected one of them' wire --connect=a:1 --listen=b:2 "$nhd" "$hnd"
	refused 5 'refused' wire --timeout=1 --connect=127.0.0.1:1 "$nhd" "$hnd"
	refused 3 'expected all of them' wire -o w.h5 "$rank1" --dst=tp=1
}

# ---- UCX ---------------------------------------------------------------------

# needs_ucx: skips where the program was built without
needs_ucx() {
	run --separate-stderr kvtool transfer-sim wire --transport=ucx --connect=7000 \
		"$nhd" "$hnd"
	[ "$status" != 4 ] || skip "built without libucx-dev"
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

@test "transfer-sim wire --transport=ucx moves what TCP moves" {
	needs_ucx
	wire --dst=tp=2,ids=random:9,block-size=32 --fill=33 -o 't%r.h5' "$nhd"
	for tls in tcp,self sm,self tcp,self,sm; do
		UCX_TLS=$tls wire -f --transport=ucx --dst=tp=2,ids=random:9,block-size=32 \
			--fill=33 -o 'u%r.h5' "$nhd"
		cmp t0.h5 u0.h5
		cmp t1.h5 u1.h5
	done
	wire --transport=ucx --all-states --mamba-groups=4 -o m.npy \
		$kv/mamba2g4/tp4_DS/*.npy "$sd"
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
	ended 3 'plans another transfer'
	listening --transport=ucx -o w.npy "$nhd" "$bs32"
	run -4 --separate-stderr kvtool transfer-sim wire --connect=127.0.0.1:"$port" \
		--transport=ucx --mem-limit=1k "$nhd" "$bs32"
	ended 4 'the peer gave up'
}

@test "transfer-sim wire --transport=ucx waits for nobody for ever" {
	needs_ucx
	# its own address: what it says comes back to it
	listening --transport=ucx -o w.npy "$nhd" "$bs32"
	peer 'h = s.recv(16, socket.MSG_WAITALL)
n = struct.unpack("<IIQ", h)[2]; s.sendall(h + s.recv(n, socket.MSG_WAITALL)); s.recv(9)'
	ended 3 'bytes early'
	# the address of one that does not listen there, and then the end of TCP, too
	for then in 'time.sleep(3)' 's.close()'; do
		listening --timeout=4 --transport=ucx -o other.npy "$nhd" "$bs32"
		mv out other.out
		mv err other.err
		local other=$pid at=$port
		listening --timeout=1 --transport=ucx -o w.npy "$nhd" "$bs32"
		peer 'o = socket.create_connection(("127.0.0.1", '"$at"'))
h = o.recv(16, socket.MSG_WAITALL)
s.sendall(h + o.recv(struct.unpack("<IIQ", h)[2], socket.MSG_WAITALL))
h = s.recv(16, socket.MSG_WAITALL); s.recv(struct.unpack("<IIQ", h)[2], socket.MSG_WAITALL)
'"$then" 3>&- &
		wait "$pid" || status=$?
		[ "$status" = 5 ] || { echo "status $status"; cat err; return 1; }
		[[ $then == s.close* ]] || grep 'nothing for 1000 ms' err
		kill "$other" || true
		wait "$other" || true
		rm -f out err other.*
	done
}
