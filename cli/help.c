/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.c - texts that belong to no command
 *
 * Most are tables of the program itself: faults, layouts, formats, types, contents.
 * Which backends of vLLM put bytes into a layout is asked of lib/vllm, for a shape with
 * extents that tell all axes apart; releases in which backends take any order are told
 * without names.
 */
#include "cli/cli.h"
#include "print/specs.h"
#include "lib/kvt/write.h"
#include "formats/libraries.h"
#include "lib/kvt/device.h"
#include "lib/kvt/fault.h"
#include "lib/kvt/kernels.h"
#include "lib/kvt/connect.h"
#include "lib/kvt/dump.h"

#include <string.h>

/*
 * One screen of 24 lines of 80, with a prompt below: of what few people need there are
 * names alone.
 */
void print_usage(FILE *stream)
{
	const struct command *c;
	bool more = false;

	fputs("usage: kvtool COMMAND [OPTION]... FILE...   to begin with: kvtool "
	      "describe FILE\n", stream);
	for (int i = 0; (c = command_at(i)); i++) {
		const char *purpose = command_purpose(i);

		more |= purpose && !strcmp(purpose, "more");
		if (more && !purpose)
			fprintf(stream, ", %s", c->name);
		else if (more)
			fprintf(stream, "%-6s  %s", purpose, c->name);
		else
			fprintf(stream, "%-6s  %-12s  %s\n", purpose ? purpose : "",
				c->name, c->summary);
	}
	fputs("\nkvtool help how: which command answers what; kvtool help symptoms: "
	      "what is wrong\n"
	      "kvtool CMD --help; help layouts|formats|dtypes|contents|specs|faults|python; -V\n", stream);
}

/* What people ask, and what they type then. */
static const struct {
	const char *question, *command;
} questions[] = {
	{ "What is in this file or folder?", "kvtool describe FILE" },
	{ "An .npy or .bin says nothing: which layout is it in?",
	  "kvtool guess --layers=32 --block-size=16 --heads=8 --head-dim=128 FILE" },
	{ "Whose is this byte: which token, layer, head?", "kvtool where FILE 330584" },
	{ "Where does a token lie?",
	  "kvtool where FILE request=A,token=69,layer=3,head=0,kv=k,dim=0" },
	{ "Which numbers are there?",
	  "kvtool describe --peek=request=A,token=69,layer=3,head=0,kv=k FILE" },
	{ "Another memory layout, and proof that only the order changed",
	  "kvtool relayout --to=hnd --verify IN OUT" },
	{ "Blocks of another size", "kvtool reblock --block-size=64 --verify IN OUT" },
	{ "What tensor parallel rank 1 of 4 holds", "kvtool slice --tp=1/4 IN OUT" },
	{ "All ranks as one dump", "kvtool merge -o OUT RANK0 RANK1..." },
	{ "One request, some of its tokens",
	  "kvtool slice --request=A --tokens=0:100 IN OUT" },
	{ "What an engine left on disk, as one file",
	  "kvtool import --layout=nhd --block-size=16 FOLDER out.h5" },
	{ "A cache that was saved with torch.save()",
	  "kvtool convert --from=transformers cache.pt out.h5" },
	{ "Reading it in Python",
	  "python3 -c 'import kvtool'   # the wheel of make wheel; kvtool-python(7)" },
	{ "Are two dumps the same, whatever their layout, ranks, blocks?",
	  "kvtool diff A B     kvtool diff WHOLE : RANK0 RANK1..." },
	{ "What is wrong with a dump, or between two?",
	  "kvtool doctor BAD     kvtool doctor GOOD BAD     kvtool help symptoms" },
	{ "The same within a tolerance", "kvtool diff --tolerance=atol=0.01 A B" },
	{ "A picture of where they differ", "kvtool diff --heatmap=where.svg A B" },
	{ "The smallest part that shows it, to send to somebody",
	  "kvtool shrink -o case A B" },
	{ "Is a dump or a folder whole and consistent?", "kvtool fsck FILE..." },
	{ "A check of the layout in CI",
	  "kvtool expect write -o kv.kvc FILE; kvtool expect check kv.kvc FILE..." },
	{ "Does my check find faults at all?",
	  "kvtool mutate --fault=swap-heads IN OUT" },
	{ "How much memory does a model's cache take?",
	  "kvtool size --tp=4 --tokens=32k config.json" },
	{ "How long does a transfer between two deployments take?",
	  "kvtool transfer-sim time --model=config.json --tokens=8k --src=layout=nhd,tp=4 --dst=layout=hnd,tp=8 --link=cx7-400g-verbs" },
	{ "And a trace of many requests?",
	  "kvtool transfer-sim replay --model=llama-3.1-8b trace.jsonl" },
	{ "Does every worker report every request?", "kvtool workers LOG" },
};

static void how(void)
{
	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
		printf("%s\n    %s\n", questions[i].question, questions[i].command);
	puts("\nStep by step, with real files, in docs of the source: nonsense.md (a "
	     "model talks\nnonsense), python.md (a cache in Python), plan.md (from a "
	     "pool to a plan).");
}

static void print_driver(const struct kvt_device_driver *driver, int i)
{
	const char *node = kvt_device_node(i);

	if (!driver->built)
		printf("%s: not in this build\n", driver->name);
	else if (node)
		printf("%s: %s, %s is here\n", driver->name, driver->archs, node);
	else
		printf("%s: %s, no device here\n", driver->name, driver->archs);
}

void print_version(void)
{
	struct kvt_device_driver driver;
	const struct kvt_kernel *kernel;
	char folder[PATH_MAX];
	struct kvt_library l;

	puts("kvtool " KVT_VERSION);
	for (int i = 0; kvt_library_at(&l, i); i++)
		if (l.opened)
			printf("%-8s %s, opened when a file asks for it\n", l.name,
			       l.opened);
		else
			printf("%-8s %d.%d.%d\n", l.name, l.major, l.minor, l.patch);
	puts("HDF5 filter 32015 (zstd): built in");
	if (plugin_folder(folder))
		plainf("HDF5 plugin for other programs: %s\n", folder);
	printf("cpu:");
	for (int i = 0; (kernel = kvt_cpu_kernel(i)); i++)
		if (!kernel->runs_here || kernel->runs_here())
			printf(" %s", kernel->name);
	putchar('\n');
	for (int i = 0; kvt_device_driver(&driver, i); i++)
		print_driver(&driver, i);
}

static void faults(void)
{
	const struct kvt_fault *f;

	for (int i = 0; (f = kvt_fault_at(i)); i++) {
		printf("%-18s %s\n", f->name, f->summary);
		for (int a = 0; a < KVT_FAULT_ARGS && f->arg[a].name; a++)
			printf("  %-16s %s\n", f->arg[a].name, f->arg[a].help);
		if (f->has_factor)
			printf("  %-16s %s\n", "factor", "the factor");
	}
	puts("\nAll take layer=N and block=N, which leave the rest as it is.\n"
	     "What is not given is chosen by --seed.  See kvtool-mutate(1).");
}

enum { NAME_COLUMN = 30, AXES_COLUMN = 19, FOUND_COLUMN = 48 };

/* In lines of its column; on a line below the axes where these are too long. */
static void print_found_in(const char *text, bool below)
{
	if (below)
		printf("\n%*s", NAME_COLUMN + 1 + AXES_COLUMN, "");
	while (strlen(text) > FOUND_COLUMN) {
		int n = FOUND_COLUMN;

		while (n > 1 && text[n] != ' ')
			n--;
		printf(" %.*s\n%*s", n, text, NAME_COLUMN + 1 + AXES_COLUMN, "");
		text += n + 1;
	}
	printf(" %s\n", text);
}

/*
 * The releases in which a backend of keys and values put bytes there because it wanted
 * to; those in which it took whatever it got are in *any instead.
 */
static unsigned wanted_by(const struct kvt_backend *b, const struct kvt_layout *layout,
			  const struct kvt_shape *shape, unsigned *any)
{
	unsigned releases = kvt_backend_wrote(b, layout, shape);

	for (int r = 0; r < KVT_NRELEASES; r++) {
		const struct kvt_backend_config config = {
			.release = (enum kvt_release)r,
		};
		const struct kvt_backend_layout *row = kvt_backend_layouts(b, &config);

		if (kvt_backend_check(b, &config) & 1u << KVT_BACKEND_NON_MLA)
			return 0;
		if (!row || row->names || !(releases >> r & 1))
			continue;
		releases &= ~(1u << r);
		*any |= 1u << r;
	}
	return releases;
}

/* Backends of vLLM, those of the same releases together. */
static void name_writers(char *out, size_t room, const struct kvt_layout *layout)
{
	const struct kvt_shape shape = { { 3, 5, 32, 4, 2, 64 }, 2 };
	enum { MOST = 256 };		/* some ten times what there are */
	unsigned wanted[MOST], any = 0;
	const struct kvt_backend *b;
	size_t n = strlen(out);
	int nbackends = 0;

	for (; nbackends < MOST && (b = kvt_backend_at(nbackends)); nbackends++)
		wanted[nbackends] = wanted_by(b, layout, &shape, &any);
	for (unsigned set = (1u << KVT_NRELEASES) - 1; set; set--) {
		bool first = true;

		for (int i = 0; n < room && i < nbackends; i++) {
			if (wanted[i] != set)
				continue;
			n += (size_t)snprintf(out + n, room - n, "%s%s%s",
					      first ? n ? "; vLLM " : "vLLM " : ", ",
					      first ? kvt_releases_text(set).s : "",
					      first ? ": " : "");
			b = kvt_backend_at(i);
			if (n < room)
				n += (size_t)snprintf(out + n, room - n, "%s",
						      kvt_backend_name(b));
			first = false;
		}
	}
	if (any && n < room)
		snprintf(out + n, room - n, "%svLLM %s: any without an order of its own",
			 n ? "; " : "", kvt_releases_text(any).s);
}

/* Where a name of ours, not of a project, is found. */
static void print_found(const struct kvt_preset *p)
{
	bool below = strlen(p->axes) > AXES_COLUMN;
	struct kvt_layout layout;
	char text[2000];

	snprintf(text, sizeof(text), "%s", p->found_in);
	if (!strchr(p->name, ':') && !p->latent &&
	    !kvt_layout_parse(&layout, p->name, NULL))
		name_writers(text, sizeof(text), &layout);
	print_found_in(text, below);
}

static void layouts(void)
{
	const struct kvt_preset *p;

	printf("%-*s %-*s %s\n", NAME_COLUMN, "NAME", AXES_COLUMN, "AXES, SLOWEST FIRST",
	       "FOUND IN");
	for (int i = 0; (p = kvt_preset_at(i)); i++) {
		printf("%-*s %-*s", NAME_COLUMN, p->name, AXES_COLUMN, p->axes);
		print_found(p);
	}
	puts("\nL layer, B block, S slot (token), H head, K key or value, "
	     "D element of a head,\nC content: K and D together.  A layout is "
	     "one of these names, or axes, or a tuple\nwith its convention: "
	     "rfc:0,1,3,2,4 or vllm:0,1,2,3,4.  See kvtool-layouts(7).");
}

static void formats(void)
{
	const struct kvt_format_info *f;

	printf("%-14s %-6s %s\n", "NAME", "CAN", "WHAT");
	for (int i = 0; (f = kvt_format_info(i)); i++)
		printf("%-14s %c%c     %s\n", f->name, f->reads ? 'r' : '-',
		       f->writes ? 'w' : '-', f->summary);
}

static void dtypes(void)
{
	const struct kvt_dtype *d;

	printf("%-18s %5s  %-12s %s\n", "NAME", "BYTES", "SAFETENSORS", "NPY");
	for (int i = 0; (d = kvt_dtype_at(i)); i++)
		printf("%-18s %5d  %-12s %s\n", d->name, d->elem,
		       d->safetensors ? d->safetensors : "-", d->npy);
}

static void contents(void)
{
	const struct kvt_content_type *type;
	const char *last = "";

	for (int i = 0; (type = kvt_content_type_at(i)); i++) {
		const char *const words[] = { type->vllm, type->sglang, type->kernels };

		size_t n = strcspn(type->name, "/");

		/* a family is one line */
		if (type->name[n] && !strncmp(type->name, last, n + 1))
			continue;
		last = type->name;
		printf("%-20.*s %s\n", (int)n, type->name, type->what);
		if (!words[0] && !words[1] && !words[2])
			continue;
		printf("%-20s also", "");
		for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
			if (words[w])
				printf(" %s", words[w]);
		putchar('\n');
	}
	puts("\nA name may end in /e4m3fn, /e4m3fnuz, /e5m2 or /e5m2fnuz, which says "
	     "what its fp8\nis.  See kvtool-content(7).");
}

static void python(void)
{
	char folder[PATH_MAX];

	printf("The module kvtool opens every dump that the program reads, as arrays of\n"
	       "numpy or torch by layer, request and token, and compares what is still in\n"
	       "memory.  Its wheel is made in the sources:\n\n"
	       "  $ make wheel && pip install dist/kvtool-*.whl\n"
	       "  $ python3\n"
	       "  >>> import kvtool\n"
	       "  >>> d = kvtool.open('snapshot.h5')\n"
	       "  >>> d.layout, d.shape, d.requests['A'].tokens\n"
	       "  >>> d.read(layer=3, request='A', kv='k', dtype='float32').shape\n"
	       "  >>> print(kvtool.diff(d, 'other.h5'))\n"
	       "  >>> d.view().save('dump.html')     # a notebook shows d.view() itself\n\n"
	       "A cache of transformers, whatever its class, and tensors of an engine, whose\n"
	       "dimensions are named as they are indexed:\n\n"
	       "  >>> c = kvtool.from_tensors(out.past_key_values, attention_mask=mask)\n"
	       "  >>> c.read(layer=-1, request='0', tokens=slice(0, 4)).shape\n"
	       "  >>> kvtool.diff(c, 'cache.pt', rtol=2**-7).by_layer.cosine\n"
	       "  >>> e = kvtool.from_tensors(kv_caches, layout='KBSHD',\n"
	       "  ...                         block_table={'A': [5, 2]}, num_tokens={'A': 20})\n"
	       "  >>> e.write('live.h5')\n\n"
	       "kvtool-python(7) has the rest, docs/python.md of the source a beginning.\n\n"
	       "Without it: a snapshot is HDF5.  Group g0 is the dataset groups/g0/data,\n"
	       "compressed with zstd, whose filter other programs find by HDF5_PLUGIN_PATH; or\n"
	       "kvtool convert --uncompressed writes one without.\n\n"
	       "  $ export HDF5_PLUGIN_PATH=%s\n"
	       "  $ python3\n"
	       "  >>> import h5py\n"
	       "  >>> d = h5py.File('snapshot.h5')['groups/g0/data']\n"
	       "  >>> d.shape, d.attrs['axes']\n\n"
	       "kvtool-snapshot(5) has the attributes, block tables and requests.  Converting\n"
	       "to .npy or .safetensors is another way: bfloat16 arrives as uint16 in numpy,\n"
	       "as bfloat16 in safetensors.torch.load_file().\n",
	       plugin_folder(folder) ? folder : "DIR");
}

static const struct {
	const char *name;
	void (*print)(void);
} topics[] = {
	{ "python", python },
	{ "how", how },
	{ "symptoms", symptoms_print },
	{ "faults", faults },
	{ "layouts", layouts },
	{ "formats", formats },
	{ "dtypes", dtypes },
	{ "contents", contents },
	{ "specs", specs_print },
};

const char *topic_at(int i)
{
	return i < (int)(sizeof(topics) / sizeof(topics[0])) ? topics[i].name : NULL;
}

bool print_topic(const char *name)
{
	for (size_t i = 0; i < sizeof(topics) / sizeof(topics[0]); i++)
		if (!strcmp(name, topics[i].name)) {
			topics[i].print();
			return true;
		}
	return false;
}
