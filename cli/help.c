/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - texts that belong to no command */
#include "cli/cli.h"
#include "cli/print/specs.h"
#include "lib/kvt/write.h"
#include "formats/libraries.h"
#include "lib/kvt/device.h"
#include "lib/kvt/fault.h"
#include "lib/kvt/kernels.h"
#include "lib/kvt/dump.h"

#include <string.h>

void print_usage(FILE *stream)
{
	const struct command *c;

	fputs("usage: kvtool COMMAND [OPTION]... FILE...\n\n"
	      "Inspect and convert dumps of KV caches.\n\ncommands:\n", stream);
	for (int i = 0; (c = command_at(i)); i++)
		fprintf(stream, "  %-12s %s\n", c->name, c->summary);
	fputs("\n  kvtool COMMAND --help, kvtool help COMMAND\n"
	      "  kvtool help layouts, kvtool help formats, kvtool help dtypes\n"
	      "  kvtool help contents, kvtool help faults\n"
	      "  kvtool --version\n", stream);
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
	struct kvt_library l;

	puts("kvtool " KVT_VERSION);
	for (int i = 0; kvt_library_at(&l, i); i++)
		printf("%-8s %d.%d.%d\n", l.name, l.major, l.minor, l.patch);
	puts("HDF5 filter 32015 (zstd): built in");
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
			printf("  %-16s %s\n", "factor", "what is multiplied by");
	}
	puts("\nAll take layer=N and block=N, which leave the rest as it is.\n"
	     "What is not given is chosen by --seed.  See kvtool-mutate(1).");
}

static void layouts(void)
{
	const struct kvt_preset *p;

	printf("%-26s %-38s %s\n", "NAME", "AXES, SLOWEST FIRST", "FOUND IN");
	for (int i = 0; (p = kvt_preset_at(i)); i++)
		printf("%-26s %-38s %s\n", p->name, p->axes, p->found_in);
	puts("\nL layer, B block, S state (token), H head, K key or value, "
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

	printf("%-18s %5s  %-12s %s\n", "NAME", "BYTES", "SAFETENSORS",
	       "NPY");
	for (int i = 0; (d = kvt_dtype_at(i)); i++)
		printf("%-18s %5d  %-12s %s\n", d->name, d->elem,
		       d->safetensors ? d->safetensors : "-", d->npy);
}

static void contents(void)
{
	const struct kvt_content_type *type;

	for (int i = 0; (type = kvt_content_type_at(i)); i++)
		printf("%-20s %s\n", type->name, type->what);
	puts("\nA name may end in /e4m3fn, /e4m3fnuz, /e5m2 or /e5m2fnuz, which says "
	     "what its fp8\nis.  See kvtool-content(7).");
}

static const struct {
	const char *name;
	void (*print)(void);
} topics[] = {
	{ "faults", faults },
	{ "layouts", layouts },
	{ "formats", formats },
	{ "dtypes", dtypes },
	{ "contents", contents },
	{ "specs", specs_print },
};

bool print_topic(const char *name)
{
	for (size_t i = 0; i < sizeof(topics) / sizeof(topics[0]); i++)
		if (!strcmp(name, topics[i].name)) {
			topics[i].print();
			return true;
		}
	return false;
}
