/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standalone.c - main() for the fuzz targets where libFuzzer is not: runs each
 * file that is named, and those in folders that are, once
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many files were run; exits if one cannot be read. */
static int run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data, *exact;
	size_t n, most = 1 << 24;

	data = malloc(most);
	if (!f || !data) {
		perror(path);
		exit(5);
	}
	n = fread(data, 1, most, f);
	fclose(f);
	/* exactly as large as it is, so that reading on is noticed */
	exact = malloc(n + !n);
	if (!exact) {
		perror(path);
		exit(5);
	}
	memcpy(exact, data, n);
	free(data);
	LLVMFuzzerTestOneInput(exact, n);
	free(exact);
	return 1;
}

static int run(const char *path)
{
	struct dirent *entry;
	struct stat st;
	int count = 0;
	DIR *dir;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return run_file(path);
	if (!(dir = opendir(path))) {
		perror(path);
		exit(5);
	}
	while ((entry = readdir(dir))) {
		char name[4096];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		count += run(name);
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	int count = 0;

	for (int i = 1; i < argc; i++)
		count += run(argv[i]);
	printf("%d inputs\n", count);
	return count ? 0 : 3;
}
