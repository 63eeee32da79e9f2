/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.c - the instructions of a pickle that build data, and no others
 *
 * In: the bytes of a pickle of protocol 2.  Out: a tree of nodes in an array, by number.
 * A tensor that torch.save() wrote is these instructions:
 *
 *	80 02			the protocol
 *	c torch._utils\n _rebuild_tensor_v2\n		a name is pushed
 *	( ( X "storage"  c torch\n HalfStorage\n  X "0"  X "cpu"  K 24  t Q
 *				a mark, five values, a tuple of them, and the
 *				storage that it means: type, key, elements
 *	K 0  K 2 K 12 86  K 12 K 1 86  89  c collections\n OrderedDict\n ) R
 *				offset, shape, strides, no gradient, no hooks
 *	t R			the arguments as a tuple, and the call
 *	q n, h n		what is on top is remembered as n; n is pushed
 *	.			the end: one node is on the stack
 *
 *	X u32 n, n bytes   K u8   M u16   J i32   8a u8 n, n bytes   G 8 bytes, unused
 *
 * A machine with a stack and a memo, whose nodes are tuples, lists, dicts, numbers,
 * strings, and calls of names that are known (pickle_tensor.c).  Nothing is executed,
 * and memory is in proportion to the file: an instruction makes one node at most, and
 * moves to tuples, lists and dicts what others have pushed.  Facts: pickletools.py of
 * CPython, torch/serialization.py and torch/_utils.py.
 */
#include "formats/parse/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"
#include "lib/base/grow.h"

/* A stack deeper than this is no dict of tensors. */
enum { MAX_STACK = 1 << 16, MAX_NODES = 1 << 20, MAX_MEMO = 1 << 20, MAX_NAME = 200,
       PROTOCOL = 2 };

struct machine {
	const uint8_t *begin, *at, *end;
	const char *name;		/* of the file */
	struct kvt_error *err;
	struct kvt_pickle *out;
	int32_t *stack;
	int32_t depth;
	int32_t *memo;			/* -1: nothing */
	int32_t nmemo;
	bool stopped;
};

static enum kvt_status malformed(const struct machine *m, const char *what)
{
	return kvt_fail(m->err, KVT_BAD_INPUT, "%s: pickle: %s before byte %lld", m->name,
			what, LL(m->at - m->begin));
}

/* ---- nodes and the stack ------------------------------------------------ */

static enum kvt_status push(struct machine *m, int32_t node)
{
	if (m->depth == MAX_STACK)
		return kvt_fail(m->err, KVT_UNSUPPORTED,
				"%s: pickle: stack deeper than %d", m->name, MAX_STACK);
	if (!KVT_GROW(&m->stack, m->depth))
		return kvt_no_memory(m->err, m->name);
	m->stack[m->depth++] = node;
	return KVT_OK;
}

static enum kvt_status push_new(struct machine *m, const struct kvt_pickle_node *node)
{
	if (m->out->count == MAX_NODES)
		return kvt_fail(m->err, KVT_UNSUPPORTED,
				"%s: pickle of more than %d objects", m->name, MAX_NODES);
	if (m->out->count == INT32_MAX || !KVT_GROW(&m->out->node, m->out->count))
		return kvt_no_memory(m->err, m->name);
	m->out->node[m->out->count++] = *node;
	return push(m, m->out->count - 1);
}

static enum kvt_status push_kind(struct machine *m, enum kvt_pickle_kind kind,
				 int64_t number)
{
	return push_new(m, &(struct kvt_pickle_node){ .kind = kind, .number = number });
}

static struct kvt_pickle_node *top(struct machine *m)
{
	return m->depth ? &m->out->node[m->stack[m->depth - 1]] : NULL;
}

static bool top_is(struct machine *m, enum kvt_pickle_kind kind)
{
	return m->depth && top(m)->kind == kind;
}

static enum kvt_status add_item(struct machine *m, struct kvt_pickle_items *items,
				int32_t node)
{
	if (m->out->node[node].kind == KVT_PICKLE_MARK)
		return malformed(m, "a mark among data");
	if (items->count == INT32_MAX || !KVT_GROW(&items->node, items->count))
		return kvt_no_memory(m->err, m->name);
	items->node[items->count++] = node;
	return KVT_OK;
}

/* How many stand on the last mark; -1: there is none. */
static int32_t above_mark(const struct machine *m)
{
	for (int32_t i = m->depth - 1; i >= 0; i--)
		if (m->out->node[m->stack[i]].kind == KVT_PICKLE_MARK)
			return m->depth - 1 - i;
	return -1;
}

/* Moves the topmost 'n' into what stands below them, and below a mark. */
static enum kvt_status move_items(struct machine *m, int32_t n, bool marked,
				  enum kvt_pickle_kind kind)
{
	int32_t first = m->depth - n, below = first - 1 - marked;
	struct kvt_pickle_node *into;

	if (n < 0 || below < 0 || m->out->node[m->stack[below]].kind != kind)
		return malformed(m, "entries of no list or dict");
	into = &m->out->node[m->stack[below]];
	if (kind == KVT_PICKLE_DICT && n % 2)
		return malformed(m, "a key without a value");
	for (int32_t i = 0; i < n; i++) {
		enum kvt_status status = add_item(m, &into->items, m->stack[first + i]);

		if (status)
			return status;
	}
	m->depth = below + 1;
	return KVT_OK;
}

/* Has the tree these?  A node may be made and then find no room on the stack. */
static bool owned(const struct machine *m, const struct kvt_pickle_items *items)
{
	return m->out->count && m->out->node[m->out->count - 1].items.node == items->node;
}

static enum kvt_status make_tuple(struct machine *m, int32_t n, bool marked)
{
	struct kvt_pickle_node tuple = { .kind = KVT_PICKLE_TUPLE };
	int32_t first = m->depth - n;
	enum kvt_status status = KVT_OK;

	if (n < 0 || first - marked < 0)
		return malformed(m, "a tuple of what is not there");
	for (int32_t i = 0; !status && i < n; i++)
		status = add_item(m, &tuple.items, m->stack[first + i]);
	if (!status) {
		m->depth = first - marked;
		status = push_new(m, &tuple);
	}
	if (status && !owned(m, &tuple.items))
		free(tuple.items.node);
	return status;
}

/* ---- memo --------------------------------------------------------------- */

static enum kvt_status put(struct machine *m, uint32_t i)
{
	/* torch counts from 0 without holes */
	if (!m->depth || i > (uint32_t)m->nmemo || i >= MAX_MEMO)
		return malformed(m, "a memo of nothing, or with holes");
	if (i == (uint32_t)m->nmemo) {
		if (!KVT_GROW(&m->memo, m->nmemo))
			return kvt_no_memory(m->err, m->name);
		m->nmemo++;
	}
	m->memo[i] = m->stack[m->depth - 1];
	return top_is(m, KVT_PICKLE_MARK) ? malformed(m, "a memo of a mark") : KVT_OK;
}

static enum kvt_status get(struct machine *m, uint32_t i)
{
	if (i >= (uint32_t)m->nmemo)
		return malformed(m, "a memo that was not put");
	return push(m, m->memo[i]);
}

/* ---- operands ----------------------------------------------------------- */

/* The next 'n' bytes; NULL if there are not as many. */
static const uint8_t *take(struct machine *m, int64_t n)
{
	const uint8_t *at = m->at;

	if (n < 0 || n > m->end - m->at)
		return NULL;
	m->at += n;
	return at;
}

static enum kvt_status string(struct machine *m)
{
	const uint8_t *head = take(m, 4), *text;
	int64_t n = head ? (int64_t)kvt_le32(head) : -1;

	if (!(text = take(m, n)) || n > INT32_MAX)
		return malformed(m, "a string that is cut off");
	return push_new(m, &(struct kvt_pickle_node){
		.kind = KVT_PICKLE_STRING, .text = (const char *)text,
		.ntext = (int32_t)n });
}

/* An integer of any length in two's complement. */
static enum kvt_status long_integer(struct machine *m)
{
	const uint8_t *n = take(m, 1), *p = n ? take(m, *n) : NULL;
	uint64_t value;

	if (!p)
		return malformed(m, "an integer that is cut off");
	if (*n > 8)
		return kvt_fail(m->err, KVT_UNSUPPORTED,
				"%s: pickle: integer of %d bytes", m->name, *n);
	value = kvt_le(p, *n);
	if (*n && *n < 8 && p[*n - 1] & 0x80)
		value |= UINT64_MAX << 8 * *n;
	return push_kind(m, KVT_PICKLE_INT, (int64_t)value);
}

static enum kvt_status integer(struct machine *m, int nbytes)
{
	const uint8_t *p = take(m, nbytes);
	int64_t value;

	if (!p)
		return malformed(m, "an integer that is cut off");
	value = (int64_t)kvt_le(p, nbytes);
	if (nbytes == 4)
		value = (int32_t)(uint32_t)value;
	return push_kind(m, KVT_PICKLE_INT, value);
}

/* No cache is made of these; they may stand beside one. */
static enum kvt_status real(struct machine *m)
{
	return take(m, 8) ? push_kind(m, KVT_PICKLE_NONE, 0) :
			    malformed(m, "a number that is cut off");
}

/* A line of text, without its end. */
static bool line(const char **text, int *n, struct machine *m)
{
	const uint8_t *end = memchr(m->at, '\n', (size_t)(m->end - m->at));

	if (!end || end - m->at > MAX_NAME)
		return false;
	*text = (const char *)m->at;
	*n = (int)(end - m->at);
	m->at = end + 1;
	return true;
}

/* What to save instead of an object; the last one is for all others. */
static const char *advice(const char *name, int n)
{
	static const struct {
		const char *part, *text;
	} rows[] = {
		{ "Quant", "its keys are not plain: save what its update() returns" },
		{ "Sink", "its keys are turned to other positions than their tokens'" },
		{ "", "save [(l.keys, l.values) for l in cache.layers]" },
	};
	char text[MAX_NAME + 1];
	size_t i = 0;

	snprintf(text, sizeof(text), "%.*s", n, name);
	while (!strstr(text, rows[i].part))
		i++;
	return rows[i].text;
}

static enum kvt_status global(struct machine *m)
{
	const char *module, *what;
	int nmodule, nwhat, found;

	if (!line(&module, &nmodule, m) || !line(&what, &nwhat, m))
		return malformed(m, "a name that is cut off or too long");
	found = kvt_pickle_name(module, nmodule, what, nwhat);
	if (found < 0)
		return kvt_fail(m->err, KVT_UNSUPPORTED,
				"%s: pickle needs %.*s.%.*s, which is not run; %s",
				m->name, nmodule, module, nwhat, what,
				advice(what, nwhat));
	return push_new(m, &(struct kvt_pickle_node){ .kind = KVT_PICKLE_GLOBAL,
						      .global = found });
}

/* ---- calls -------------------------------------------------------------- */

/* ("storage", type, key, device, number of elements) */
static enum kvt_status storage(struct machine *m)
{
	const struct kvt_pickle_node *tuple, *entry[5], *nodes = m->out->node;
	struct kvt_pickle_node made = { .kind = KVT_PICKLE_STORAGE };

	if (!top_is(m, KVT_PICKLE_TUPLE) || top(m)->items.count != 5)
		return malformed(m, "a reference to no storage");
	tuple = top(m);
	for (int i = 0; i < 5; i++)
		entry[i] = &nodes[tuple->items.node[i]];
	if (entry[0]->kind != KVT_PICKLE_STRING || entry[0]->ntext != 7 ||
	    memcmp(entry[0]->text, "storage", 7) ||
	    entry[1]->kind != KVT_PICKLE_GLOBAL ||
	    !kvt_pickle_storage_elem(entry[1]->global) ||
	    entry[2]->kind != KVT_PICKLE_STRING || entry[3]->kind != KVT_PICKLE_STRING ||
	    entry[4]->kind != KVT_PICKLE_INT || entry[4]->number < 0)
		return malformed(m, "a reference to no storage");
	made.global = entry[1]->global;
	made.text = entry[2]->text;
	made.ntext = entry[2]->ntext;
	made.number = entry[4]->number;
	m->depth--;
	return push_new(m, &made);
}

static bool is_text(const struct kvt_pickle_node *n, const char *text)
{
	return n->kind == KVT_PICKLE_STRING && (size_t)n->ntext == strlen(text) &&
	       !memcmp(n->text, text, strlen(text));
}

/* Attributes of a tensor that torch.compile() was told to leave where it is. */
static bool is_static(const struct machine *m, const struct kvt_pickle_node *attributes)
{
	const struct kvt_pickle_items *items = &attributes->items;

	for (int32_t i = 0; attributes->kind == KVT_PICKLE_DICT && i < items->count;
	     i += 2)
		if (is_text(&m->out->node[items->node[i]], "_dynamo_static_input_type"))
			return true;
	return false;
}

/* 'arguments' is a tuple of the tree. */
static enum kvt_status make_tensor(struct machine *m, int global,
				   const struct kvt_pickle_node *arguments, bool fixed)
{
	struct kvt_pickle_node made = { .kind = KVT_PICKLE_TENSOR, .global = global,
					.number = fixed };
	int32_t n = kvt_pickle_arguments(global);
	enum kvt_status status = KVT_OK;

	if (arguments->items.count != n)
		return kvt_fail(m->err, KVT_UNSUPPORTED,
				"%s: pickle: call with %d arguments, expected %d", m->name,
				arguments->items.count, n);
	for (int32_t i = 0; !status && i < n; i++)
		status = add_item(m, &made.items, arguments->items.node[i]);
	if ((status || (status = push_new(m, &made))) && !owned(m, &made.items))
		free(made.items.node);
	return status;
}

/* A tensor without elements: an object of its class, of attributes and arguments. */
static enum kvt_status wrapper(struct machine *m, int global, int32_t arguments,
			       int32_t attributes)
{
	struct kvt_pickle_node made = { .kind = KVT_PICKLE_OBJECT, .global = global };
	enum kvt_status status;

	if (!(kvt_pickle_class(global) & KVT_CLASS_PART) ||
	    m->out->node[attributes].kind != KVT_PICKLE_DICT)
		return malformed(m, "a tensor of the wrong arguments");
	if ((status = add_item(m, &made.items, attributes)) ||
	    (status = add_item(m, &made.items, arguments)) ||
	    (status = push_new(m, &made)))
		if (!owned(m, &made.items))
			free(made.items.node);
	return status;
}

/* (function, type, its arguments, attributes) */
static enum kvt_status retype(struct machine *m, const struct kvt_pickle_node *arguments)
{
	const int32_t *node = arguments->items.node;
	const struct kvt_pickle_node *entry[4];

	for (int i = 0; i < 4; i++)
		entry[i] = &m->out->node[node[i]];
	if (entry[0]->kind == KVT_PICKLE_GLOBAL && entry[1]->kind == KVT_PICKLE_GLOBAL &&
	    entry[2]->kind == KVT_PICKLE_TUPLE &&
	    kvt_pickle_call(entry[0]->global) == KVT_CALL_WRAPPER)
		return wrapper(m, entry[1]->global, node[2], node[3]);
	if (entry[0]->kind != KVT_PICKLE_GLOBAL ||
	    kvt_pickle_call(entry[0]->global) != KVT_CALL_TENSOR ||
	    entry[1]->kind != KVT_PICKLE_GLOBAL || entry[2]->kind != KVT_PICKLE_TUPLE)
		return malformed(m, "a tensor of the wrong arguments");
	return make_tensor(m, entry[0]->global, entry[2], is_static(m, entry[3]));
}

/* A tensor that a module would learn. */
static enum kvt_status parameter(struct machine *m, const struct kvt_pickle_node *args)
{
	int32_t tensor = args->items.node[0];

	if (m->out->node[tensor].kind != KVT_PICKLE_TENSOR)
		return malformed(m, "a parameter of no tensor");
	return push(m, tensor);
}

/* torch.Size((2, 3)) */
static enum kvt_status same(struct machine *m, int32_t argument)
{
	if (m->out->node[argument].kind != KVT_PICKLE_TUPLE)
		return malformed(m, "a size that is no tuple");
	return push(m, argument);
}

static enum kvt_status call(struct machine *m)
{
	const struct kvt_pickle_node *function, *args;
	enum kvt_pickle_call made;
	int n;

	if (m->depth < 2 || !top_is(m, KVT_PICKLE_TUPLE))
		return malformed(m, "a call without arguments");
	args = top(m);
	function = &m->out->node[m->stack[m->depth - 2]];
	made = function->kind == KVT_PICKLE_GLOBAL ? kvt_pickle_call(function->global) :
						     KVT_CALL_NONE;
	if (made == KVT_CALL_NONE || made == KVT_CALL_WRAPPER)
		return malformed(m, "a call of what is no function");
	n = kvt_pickle_arguments(function->global);
	if (n >= 0 && args->items.count != n)
		return kvt_fail(m->err, KVT_UNSUPPORTED,
				"%s: pickle: call with %d arguments, expected %d", m->name,
				args->items.count, n);
	m->depth -= 2;
	switch (made) {
	case KVT_CALL_TENSOR: return make_tensor(m, function->global, args, false);
	case KVT_CALL_RETYPE: return retype(m, args);
	case KVT_CALL_PARAMETER: return parameter(m, args);
	case KVT_CALL_SAME:   return same(m, args->items.node[0]);
	case KVT_CALL_DICT:   return push_kind(m, KVT_PICKLE_DICT, 0);
	default:	      return push_kind(m, KVT_PICKLE_NONE, 0);
	}
}

/* ---- objects ------------------------------------------------------------ */

/* Of a class that is known; what its constructor would do is not done. */
static enum kvt_status object(struct machine *m)
{
	const struct kvt_pickle_node *class;
	int32_t global;

	if (m->depth < 2 || !top_is(m, KVT_PICKLE_TUPLE))
		return malformed(m, "an object without arguments");
	class = &m->out->node[m->stack[m->depth - 2]];
	if (class->kind != KVT_PICKLE_GLOBAL || !kvt_pickle_class(class->global) ||
	    top(m)->items.count)
		return malformed(m, "an object of no class");
	global = class->global;
	m->depth -= 2;
	return push_new(m, &(struct kvt_pickle_node){ .kind = KVT_PICKLE_OBJECT,
						      .global = global });
}

/* Gives an object its attributes. */
static enum kvt_status build(struct machine *m)
{
	struct kvt_pickle_node *into;

	if (m->depth < 2 || !top_is(m, KVT_PICKLE_DICT))
		return malformed(m, "attributes that are no dict");
	into = &m->out->node[m->stack[m->depth - 2]];
	if (into->kind != KVT_PICKLE_OBJECT || into->items.count)
		return kvt_fail(m->err, KVT_UNSUPPORTED,
				"%s: pickle: attributes of what is no cache of transformers, before byte %lld",
				m->name, LL(m->at - m->begin));
	m->depth--;
	return add_item(m, &into->items, m->stack[m->depth]);
}

/* ---- instructions ------------------------------------------------------- */

static enum kvt_status protocol(struct machine *m)
{
	const uint8_t *p = take(m, 1);

	if (!p)
		return malformed(m, "a protocol that is cut off");
	if (*p != PROTOCOL)
		return kvt_fail(m->err, KVT_UNSUPPORTED,
				"%s: pickle protocol %d, expected %d, which torch.save() uses",
				m->name, *p, PROTOCOL);
	return KVT_OK;
}

static enum kvt_status stop(struct machine *m)
{
	if (m->depth != 1 || top(m)->kind >= KVT_PICKLE_GLOBAL)
		return malformed(m, "an end with more or less than one object");
	m->stopped = true;
	m->out->root = m->stack[0];
	return KVT_OK;
}

static enum kvt_status memo(struct machine *m, int nbytes,
			    enum kvt_status (*what)(struct machine *, uint32_t))
{
	const uint8_t *p = take(m, nbytes);

	return p ? what(m, (uint32_t)kvt_le(p, nbytes)) :
		   malformed(m, "a memo that is cut off");
}

static enum kvt_status execute(struct machine *m, uint8_t op)
{
	switch (op) {
	case 0x80: return protocol(m);
	case '(':  return push_kind(m, KVT_PICKLE_MARK, 0);
	case ')':  return make_tuple(m, 0, false);
	case 't':  return make_tuple(m, above_mark(m), true);
	case 0x85: return make_tuple(m, 1, false);
	case 0x86: return make_tuple(m, 2, false);
	case 0x87: return make_tuple(m, 3, false);
	case ']':  return push_kind(m, KVT_PICKLE_LIST, 0);
	case 'a':  return move_items(m, 1, false, KVT_PICKLE_LIST);
	case 'e':  return move_items(m, above_mark(m), true, KVT_PICKLE_LIST);
	case '}':  return push_kind(m, KVT_PICKLE_DICT, 0);
	case 's':  return move_items(m, 2, false, KVT_PICKLE_DICT);
	case 'u':  return move_items(m, above_mark(m), true, KVT_PICKLE_DICT);
	case 'N':  return push_kind(m, KVT_PICKLE_NONE, 0);
	case 0x88: return push_kind(m, KVT_PICKLE_BOOL, 1);
	case 0x89: return push_kind(m, KVT_PICKLE_BOOL, 0);
	case 'K':  return integer(m, 1);
	case 'M':  return integer(m, 2);
	case 'J':  return integer(m, 4);
	case 0x8a: return long_integer(m);
	case 'G':  return real(m);
	case 'X':  return string(m);
	case 'c':  return global(m);
	case 'q':  return memo(m, 1, put);
	case 'r':  return memo(m, 4, put);
	case 'h':  return memo(m, 1, get);
	case 'j':  return memo(m, 4, get);
	case 'Q':  return storage(m);
	case 'R':  return call(m);
	case 0x81: return object(m);
	case 'b':  return build(m);
	case '.':  return stop(m);
	}
	return kvt_fail(m->err, KVT_UNSUPPORTED,
			"%s: pickle instruction 0x%02x at byte %lld builds more than dicts, lists and tuples of tensors",
			m->name, op, LL(m->at - m->begin - 1));
}

enum kvt_status kvt_pickle_read(struct kvt_pickle *out, const uint8_t *bytes,
				int64_t nbytes, const char *name, struct kvt_error *err)
{
	struct machine m = { .begin = bytes, .at = bytes, .end = bytes + nbytes,
			     .name = name, .err = err, .out = out };
	enum kvt_status status = KVT_OK;

	*out = (struct kvt_pickle){ 0 };
	while (!status && !m.stopped && m.at < m.end)
		status = execute(&m, *m.at++);
	if (!status && !m.stopped)
		status = malformed(&m, "no end");
	if (!status && m.at != m.end)
		status = malformed(&m, "more than one object");
	free(m.stack);
	free(m.memo);
	if (status)
		kvt_pickle_free(out);
	return status;
}

int32_t kvt_pickle_value(const struct kvt_pickle *p, int32_t dict, const char *name)
{
	const struct kvt_pickle_items *items;

	if (dict < 0 || p->node[dict].kind != KVT_PICKLE_DICT)
		return -1;
	items = &p->node[dict].items;
	/* of two the last one counts, as in Python */
	for (int32_t i = items->count - 2; i >= 0; i -= 2) {
		const struct kvt_pickle_node *key = &p->node[items->node[i]];

		if (key->kind == KVT_PICKLE_STRING &&
		    (size_t)key->ntext == strlen(name) &&
		    !memcmp(key->text, name, (size_t)key->ntext))
			return items->node[i + 1];
	}
	return -1;
}

int32_t kvt_pickle_attribute(const struct kvt_pickle *p,
			     const struct kvt_pickle_node *object, const char *name)
{
	return object->items.count ?
	       kvt_pickle_value(p, object->items.node[0], name) : -1;
}

void kvt_pickle_free(struct kvt_pickle *pickle)
{
	for (int32_t i = 0; i < pickle->count; i++)
		free(pickle->node[i].items.node);
	free(pickle->node);
	*pickle = (struct kvt_pickle){ 0 };
}
