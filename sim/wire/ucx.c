/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx.c - the bytes of frames over UCX, for two processes that TCP joined
 *
 * The library is opened by its name when it is asked for; nothing is linked.  A stream
 * of bytes, one request at a time; who waits polls, busily at first, then every 100 us,
 * and looks at the TCP connection, which tells that a peer is gone where shared memory
 * does not.  What is not through by its time, or at a signal, is cancelled.
 */
#include "sim/wire/ucx.h"

#if KVT_UCX

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <ucp/api/ucp.h>

#include "print/out/signals.h"
#include "sim/wire/socket.h"

/* Nothing is linked: the functions that are used, by the types of the header. */
#define CALLS(X) \
	X(ucp_config_read) X(ucp_config_release) X(ucp_init_version) X(ucp_cleanup) \
	X(ucp_worker_create) X(ucp_worker_destroy) X(ucp_worker_get_address) \
	X(ucp_worker_release_address) X(ucp_worker_progress) X(ucp_ep_create) \
	X(ucp_ep_close_nbx) X(ucp_stream_send_nbx) X(ucp_stream_recv_nbx) \
	X(ucp_request_check_status) X(ucp_request_cancel) X(ucp_request_free) \
	X(ucs_status_string)
#define MEMBER(name) __typeof__(name) *name;
#define NAME(name) #name,

struct wire_ucx {
	void *library;
	struct calls { CALLS(MEMBER) } call;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	ucp_ep_h ep;
	size_t received;		/* by the request that is under way */
	ucs_status_t broken;		/* why the connection is; UCS_OK: it is not */
	bool unguarded;			/* errors are not told */
	bool stuck;			/* something was given up */
	int fd;
};

enum {
	PART = 64 * 1024,		/* what must be through before time is over */
	BUSY = 1000,			/* looks before sleeping between them */
	GRACE_MS = 500,			/* for what was sent before the peer went */
	CLOSE_MS = 1000,
};

static enum kvt_status refused(const struct wire_ucx *u, const char *doing,
			       ucs_status_t why, struct kvt_error *err)
{
	return kvt_fail(err, KVT_SYSTEM, "ucx: %s: %s", doing,
			u->call.ucs_status_string(why));
}

/* ---- the library ----------------------------------------------------- */

/*
 * Before it is loaded, which is when it reads these: what it logs, and to stdout,
 * is not for the user, and memory is the allocator's alone.
 */
static void be_quiet(void)
{
	setenv("UCX_LOG_LEVEL", "fatal", 0);
	setenv("UCX_MEM_EVENTS", "n", 0);
	setenv("UCX_ERROR_SIGNALS", "", 0);
}

static enum kvt_status load(struct wire_ucx *u, struct kvt_error *err)
{
	static const char *const names[] = { CALLS(NAME) };
	/* pointers of one size each, in the order of the names */
	unsigned char *at = (unsigned char *)&u->call;

	be_quiet();
	u->library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!u->library)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"transport ucx needs libucp.so.0 (Debian: libucx0): %.300s",
				dlerror());
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *found = dlsym(u->library, names[i]);

		if (!found)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"transport ucx: this libucp.so.0 has no %s",
					names[i]);
		memcpy(at + i * sizeof(found), &found, sizeof(found));
	}
	return KVT_OK;
}

static ucs_status_t make_worker(struct wire_ucx *u)
{
	const ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				      .features = UCP_FEATURE_STREAM };
	const ucp_worker_params_t single = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucp_config_t *config;
	ucs_status_t status = u->call.ucp_config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return status;
	status = u->call.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
					  &u->context);
	u->call.ucp_config_release(config);
	if (status != UCS_OK) {
		u->context = NULL;
		return status;
	}
	status = u->call.ucp_worker_create(u->context, &single, &u->worker);
	if (status != UCS_OK)
		u->worker = NULL;
	return status;
}

enum kvt_status wire_ucx_built(struct kvt_error *err)
{
	(void)err;
	return KVT_OK;
}

enum kvt_status wire_ucx_open(struct wire_ucx **out, const void **address,
			      int64_t *nbytes, int fd, struct kvt_error *err)
{
	struct wire_ucx *u = calloc(1, sizeof(*u));
	enum kvt_status status;
	ucs_status_t got;
	size_t n = 0;

	if (!u)
		return kvt_no_memory(err, NULL);
	u->fd = fd;
	if (!(status = load(u, err))) {
		got = make_worker(u);
		if (got == UCS_OK)
			got = u->call.ucp_worker_get_address(u->worker, &u->address, &n);
		if (got != UCS_OK)
			status = refused(u, "cannot start", got, err);
	}
	if (status) {
		wire_ucx_close(u);
		return status;
	}
	*out = u;
	*address = u->address;
	*nbytes = (int64_t)n;
	return KVT_OK;
}

static void note_broken(void *user_data, ucp_ep_h ep, ucs_status_t why)
{
	struct wire_ucx *u = user_data;

	(void)ep;
	u->broken = why;
}

/*
 * A handler, without which an error ends the process, is to be had only over
 * what notices that a peer is gone; shared memory alone does not.
 */
enum kvt_status wire_ucx_connect(struct wire_ucx *u, const void *address,
				 struct kvt_error *err)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = address, .err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { note_broken, u },
	};
	ucs_status_t got = u->call.ucp_ep_create(u->worker, &params, &u->ep);

	if (got == UCS_ERR_UNREACHABLE) {
		params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
		got = u->call.ucp_ep_create(u->worker, &params, &u->ep);
		u->unguarded = true;
	}
	if (got == UCS_OK)
		return KVT_OK;
	u->ep = NULL;
	return refused(u, "cannot reach the peer", got, err);
}

/* ---- waiting --------------------------------------------------------- */

static bool peer_is_gone(const struct wire_ucx *u)
{
	char c;

	return recv(u->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Nobody says when something moves: look, first often, then now and then. */
static void look(const struct wire_ucx *u, int *idle)
{
	const struct timespec nap = { .tv_nsec = 100000 };

	if (u->call.ucp_worker_progress(u->worker))
		*idle = 0;
	else if (++*idle < BUSY)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* Until the request is through; then, or when it cannot be waited for, it is freed. */
static enum kvt_status finish(struct wire_ucx *u, ucs_status_ptr_t request,
			      int64_t until, const char *doing, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	bool gone = false;
	ucs_status_t got;
	int idle = 0;

	if (!request)
		return KVT_OK;
	if (UCS_PTR_IS_ERR(request))
		return refused(u, doing, UCS_PTR_STATUS(request), err);
	while ((got = u->call.ucp_request_check_status(request)) == UCS_INPROGRESS) {
		look(u, &idle);
		if (interrupted)
			status = kvt_fail(err, KVT_SYSTEM, "interrupted");
		else if (u->broken != UCS_OK)
			status = refused(u, "the peer is gone", u->broken, err);
		else if (wire_now_ms() >= until)
			status = gone ?
				 kvt_fail(err, KVT_SYSTEM, "the peer is gone") :
				 kvt_fail(err, KVT_SYSTEM,
				 	"%s: not through in time: --timeout, --deadline", doing);
		else if (!gone && idle >= BUSY && (gone = peer_is_gone(u)) &&
			 wire_now_ms() + GRACE_MS < until)
			until = wire_now_ms() + GRACE_MS;
		if (status)
			break;
	}
	u->stuck |= status != KVT_OK;
	if (status)
		u->call.ucp_request_cancel(u->worker, request);
	else if (got != UCS_OK)
		status = refused(u, doing, got, err);
	u->call.ucp_request_free(request);
	return status;
}

/*
 * Until the peer has read what was sent, or is gone: it shuts its half of the TCP
 * connection then, as we do here.
 */
static void linger(const struct wire_ucx *u)
{
	int64_t until = wire_now_ms() + CLOSE_MS;
	int idle = 0;

	shutdown(u->fd, SHUT_WR);
	while (!peer_is_gone(u) && wire_now_ms() < until && !interrupted)
		look(u, &idle);
}

static void close_endpoint(struct wire_ucx *u)
{
	static const ucp_request_param_t flush = { .op_attr_mask = 0 };
	static const ucp_request_param_t force = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	bool bad = u->stuck || u->broken != UCS_OK;

	if (!bad)
		linger(u);
	u->broken = UCS_OK;
	/* whether the rest arrives does not matter: its receiver has a timeout */
	if (finish(u, u->call.ucp_ep_close_nbx(u->ep, bad && !u->unguarded ? &force :
					       &flush),
		   wire_now_ms() + CLOSE_MS, "closing", NULL))
		u->ep = NULL;
}

void wire_ucx_close(struct wire_ucx *u)
{
	if (!u)
		return;
	if (u->ep)
		close_endpoint(u);
	if (u->address)
		u->call.ucp_worker_release_address(u->worker, u->address);
	if (u->worker)
		u->call.ucp_worker_destroy(u->worker);
	if (u->context)
		u->call.ucp_cleanup(u->context);
	/* it stays loaded: it may have threads and handlers of its own */
	free(u);
}

/* ---- bytes ----------------------------------------------------------- */

enum kvt_status wire_ucx_send(struct wire_ucx *u, const void *bytes, int64_t n,
			      int64_t until, struct kvt_error *err)
{
	const ucp_request_param_t plain = { .op_attr_mask = 0 };
	const uint8_t *at = bytes;
	enum kvt_status status = KVT_OK;

	for (int64_t part; !status && n > 0; at += part, n -= part) {
		part = n < PART ? n : PART;
		status = finish(u, u->call.ucp_stream_send_nbx(u->ep, at, (size_t)part,
							       &plain),
				until, "sending to the peer", err);
	}
	return status;
}

static void note_received(void *request, ucs_status_t status, size_t length,
			  void *user_data)
{
	struct wire_ucx *u = user_data;

	(void)request;
	u->received = status == UCS_OK ? length : 0;
}

enum kvt_status wire_ucx_receive(struct wire_ucx *u, void *bytes, int64_t n,
				 int64_t until, struct kvt_error *err)
{
	const ucp_request_param_t note = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.recv_stream = note_received, .user_data = u,
	};
	uint8_t *at = bytes;

	while (n > 0) {
		ucs_status_ptr_t request;
		enum kvt_status status;
		size_t at_once = 0;

		u->received = 0;
		request = u->call.ucp_stream_recv_nbx(u->ep, at, (size_t)n, &at_once,
						      &note);
		status = finish(u, request, until, "waiting for the peer", err);
		if (status)
			return status;
		if (!request)
			u->received = at_once;
		if ((int64_t)u->received > n)
			return kvt_fail(err, KVT_SYSTEM, "ucx: %lld bytes of %lld came",
					LL(u->received), LL(n));
		at += u->received;
		n -= (int64_t)u->received;
	}
	return KVT_OK;
}

#else	/* without the headers of UCX */

enum kvt_status wire_ucx_built(struct kvt_error *err)
{
	return kvt_fail(err, KVT_UNSUPPORTED,
			"transport ucx is not in this build, expected tcp");
}

enum kvt_status wire_ucx_open(struct wire_ucx **out, const void **address,
			      int64_t *nbytes, int fd, struct kvt_error *err)
{
	(void)out;
	(void)address;
	(void)nbytes;
	(void)fd;
	return wire_ucx_built(err);
}

enum kvt_status wire_ucx_connect(struct wire_ucx *u, const void *address,
				 struct kvt_error *err)
{
	(void)u;
	(void)address;
	return wire_ucx_built(err);
}

void wire_ucx_close(struct wire_ucx *u)
{
	(void)u;
}

enum kvt_status wire_ucx_send(struct wire_ucx *u, const void *bytes, int64_t n,
			      int64_t until, struct kvt_error *err)
{
	(void)u;
	(void)bytes;
	(void)n;
	(void)until;
	return wire_ucx_built(err);
}

enum kvt_status wire_ucx_receive(struct wire_ucx *u, void *bytes, int64_t n,
				 int64_t until, struct kvt_error *err)
{
	(void)u;
	(void)bytes;
	(void)n;
	(void)until;
	return wire_ucx_built(err);
}

#endif
