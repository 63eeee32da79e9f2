# SPDX-License-Identifier: Apache-2.0
# The whole build of kvtool.  'make help' lists the targets; config.mk, which is
# not tracked, may override any variable.

-include config.mk

B       ?= build
CXX     ?= c++
PREFIX  ?= /usr/local
CFLAGS  ?= -O2 -g
SAN     ?=
WERROR  ?=
V       ?=
# 0: without what the compiler has against mistakes in memory; see below.
HARDEN  ?= 1
# What installs missing packages; DEPS=: leaves that to you.
DEPS    ?= scripts/deps.sh
JOBS    ?= $(shell nproc 2>/dev/null || echo 1)
# GPU kernels: auto takes what compilers are there, 0 none, 1 insists.
CUDA    ?= auto
HIP     ?= auto
NVCC    ?= $(firstword $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null))
HIPCC   ?= $(firstword $(shell command -v hipcc || command -v clang++-19))
CUDA_GENCODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
		-gencode arch=compute_90,code=compute_90
# those of them that the compiler knows
HIP_ARCH ?= gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1201

# UCX for transfer-sim wire: auto takes its headers if they are there, 0 not, 1
# insists; its library is opened when it is asked for.
UCX     ?= auto

# MPI=1 builds kvtool-mpi, too, with the compiler wrapper of Open MPI.
MPI     ?= 0
MPICC   ?= mpicc
ifeq ($(MPI),1)
MPIFLAGS := $(patsubst -I%,-isystem %,$(shell $(MPICC) --showme:compile))
MPILIBS  := $(shell $(MPICC) --showme:link)
endif

bindir        = $(PREFIX)/bin
libdir        = $(PREFIX)/lib
includedir    = $(PREFIX)/include
mandir        = $(PREFIX)/share/man
# as the program looks for it, from where it lies itself
modelsdir     = $(bindir)/../share/kvtool/models
bashcompdir   = $(PREFIX)/share/bash-completion/completions
pythondir     = $(PREFIX)/lib/python3/dist-packages
zshcompdir    = $(PREFIX)/share/zsh/site-functions
HDF5_PLUGIN_DIR ?= $(libdir)/kvtool/hdf5-plugin

# ---- flags -------------------------------------------------------------------

STD     := -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -D_FILE_OFFSET_BITS=64
WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes \
	   -Wmissing-prototypes -Wwrite-strings -Wvla -Wundef $(if $(WERROR),-Werror)
SANFLAG := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer \
	   $(if $(findstring address,$(SAN)),-DKVT_LSAN))

pkg     = $(shell pkg-config $(1) $(2) 2>/dev/null)
# HDF5 of programs: archive, opened (the shared library, when a file asks for it), or
# auto: the archive if it can be linked without what Debian's shared library brings.
HDF5    ?= auto
FPKG    := libzstd jansson libxxhash zlib
USE_UCX := $(if $(filter 0,$(UCX)),0,$(if $(filter 1,$(UCX)),1,$(shell \
	   pkg-config --exists ucx 2>/dev/null && echo 1 || echo 0)))
FCFLAGS := $(call pkg,--cflags,hdf5-serial $(FPKG)) -DKVT_UCX=$(USE_UCX)
LIBS    := $(call pkg,--libs,$(FPKG)) -lpthread -ldl -lm
FLIBS   := @$(B)/hdf5.libs $(LIBS)
PLIBS   := $(call pkg,--libs,libzstd)
CMOCKA  := $(call pkg,--libs,cmocka)

# ---- static libraries ----------------------------------------------------------

# STATIC=1 links HDF5, zstd, jansson, xxHash and zlib into the program, libkvt.so and the
# plugin, so that they need the C library alone.  scripts/static_libs.sh builds them, once.
# None of their symbols is to be seen: a process may have an HDF5 of its own.
STATIC     ?=
STATIC_DIR ?= build/static
STATICLIBS := $(if $(filter-out 0,$(STATIC)),$(STATIC_DIR)/versions)
archive     = $(STATIC_DIR)/lib/lib$(1).a
ifneq ($(STATICLIBS),)
FCFLAGS := -I$(STATIC_DIR)/include -DKVT_UCX=$(USE_UCX)
FLIBS   := -Wl,--exclude-libs,ALL $(foreach l,hdf5 z zstd jansson xxhash,$(call archive,$l)) \
	   -lpthread -ldl -lm
LIBS    := $(FLIBS)
PLIBS   := -Wl,--exclude-libs,ALL $(call archive,zstd)
endif

# What ASan says of each line has addresses in it; where the program is linked for one
# place, nothing relocates them, and thousands of short runs take a fifth less.
NOPIE   := $(if $(findstring address,$(SAN)),-no-pie)

# Files come from strangers: what compiler and linker have against a mistake that one of
# them finds.  Sanitizers see more, and want calls as they are written.  _FORTIFY_SOURCE needs
# -O, and is left alone where a distribution's flags have it.
takes   = $(shell $(CC) -Werror $(1) -c -o /dev/null -x c /dev/null 2>/dev/null && echo '$(1)')
ifeq ($(if $(SAN),0,$(HARDEN)),1)
FORTIFY := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE
HARDCC  := $(foreach f,-fstack-protector-strong -fstack-clash-protection -fcf-protection \
	   -mbranch-protection=standard,$(call takes,$f)) \
	   $(if $(findstring _FORTIFY_SOURCE,$(CPPFLAGS) $(CFLAGS)),, \
	   $(if $(filter-out -O0,$(filter -O%,$(CFLAGS))), \
	   $(FORTIFY)=$(if $(call takes,-O2 $(FORTIFY)=3 -include stdlib.h),3,2)))
HARDLD  := -Wl,-z,relro,-z,now,-z,noexecstack
HARDPIE := -pie
endif

# One set of objects for the program and for the shared library, which sanitizers have none
# of.  Calls between functions of one file stay direct, and the linker makes those of a
# program direct, too.
PIC     := $(if $(SAN),,-fPIC -fno-semantic-interposition)

ALL     := $(STD) $(WARN) -I. $(HARDCC) $(CPPFLAGS) $(CFLAGS) $(PIC) $(SANFLAG) $(NOPIE:-%=-f%)
LINK    := $(ALL) $(NOPIE) $(HARDPIE) $(HARDLD) $(LDFLAGS)
SHARE   := $(CFLAGS) $(HARDLD) $(LDFLAGS) -shared

Q       := $(if $(V),,@)
say      = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')

# ---- files -------------------------------------------------------------------

objs     = $(patsubst %.c,$(B)/%.o,$(wildcard $(1)))
bins     = $(patsubst %.c,$(B)/%,$(wildcard $(1)))
# Rooms of lib/: pure ones, which need a C compiler only, and the engine.
PURE    := base hash layout model transfer vllm fault
CORE    := $(call objs,$(PURE:%=lib/%/*.c) kernels/*.c kernels/cpu/*.c) $(B)/kernels/gpu_images.o
# How the table of HDF5's functions is filled, in libkvt and in programs.
LINKED  := $(B)/formats/hdf5/linked.o
OPENED  := $(B)/formats/hdf5/opened.o
READERS := $(filter-out %/hdf5/plugin.o $(LINKED) $(OPENED),$(call objs,formats/*.c formats/*/*.c))
LIBFORMATS := $(READERS) $(if $(STATICLIBS),$(LINKED),$(OPENED))
FORMATS := $(READERS) $(B)/hdf5.o
CLI     := $(filter-out $(B)/cli/mpi/%,$(call objs,cli/*.c cli/*/*.c cli/cmd/*/*.c print/*.c print/*/*.c \
	   $(addprefix sim/,cmd/*.c print/*.c wire/*.c)))
# kvtool-mpi runs commands in its own way, and is the same otherwise.
MPIOBJS := $(call objs,cli/mpi/*.c)
CLIMPI  := $(filter-out $(B)/cli/shard/drive.o,$(CLI)) $(MPIOBJS)
# The plugin is the zstd filter without the rest of formats/, as shared code.
PLUGIN  := $(patsubst %.c,$(B)/pic/%.o,lib/tile/zstd_frame.c formats/hdf5/zstd_filter.c \
	   formats/hdf5/plugin.c lib/base/error.c lib/base/text.c)

# What programs and tests are linked with, room by room; libkvt is all but sim.
LIB     := $(B)/core.a
ENGINE  := $(B)/engine.a
SIM     := $(B)/sim.a
WORKS   := $(SIM) $(ENGINE)
LIBKVT  := $(B)/libkvt.a
SOVERSION := 0
SHARED  := $(B)/libkvt.so.$(SOVERSION)
TOOL    := $(B)/kvtool
MPITOOL := $(if $(filter 1,$(MPI)),$(B)/kvtool-mpi)
FILTER  := $(B)/plugin/libh5kvtzstd.so
# The tests of pure rooms need no format; the others link the engine and formats/.
CORETEST   := $(call bins,tests/unit/lib/test_*.c)
FORMATTEST := $(call bins,tests/unit/formats/test_*.c tests/unit/dump/test_*.c tests/unit/ops/test_*.c)
FUZZ    := $(call bins,tests/fuzz/fuzz_*.c)
BENCH   := $(call bins,bench/bench_*.c)
# A Python file of tests/ that can be run is a test; the others are modules.
STANDIN := $(B)/tests/kvtool_standin
STANDINLIB := $(if $(SAN),,$(B)/tests/standin/libkvt.so.0)
CHAIN   := $(B)/tests/chain
REFERENCE := $(call bins,tests/reference/*.c)
WHOLE   := $(B)/tests/libkvt_whole.so
LOSSY   := $(B)/tests/kvtool_lossy
OPENING := $(if $(STATICLIBS),,$(B)/kvtool_opening)
# The files that the tour of CONTRIBUTING.md names, which then say what is called.
TOUR    := $(B)/tests/kvtool_tour
TOURED  := $(sort $(shell sed -n 's/^| [0-9]* | `\([a-z0-9_/]*\)\.c` .*/\1.o/p' CONTRIBUTING.md))
# What reads the sources, or builds them once more, has nothing to tell sanitizers.
# Nor has a library that a Python without them loads, and a page in a browser.
SOURCES := tests/check_abi.sh tests/check_circles.py tests/check_gpu_absent.sh \
	   tests/check_gpu_code.sh tests/check_hardened.sh \
	   tests/check_headers.sh tests/check_html.py tests/check_install.sh tests/check_layers.sh \
	   tests/check_man.sh tests/check_notebook.py tests/check_structs.py tests/check_style.sh \
	   tests/check_tour.py \
	   tests/oracle_notebook.py tests/oracle_pages.py tests/oracle_pytest.py tests/oracle_python.py \
	   tests/oracle_python_caches.py tests/oracle_python_device.py tests/oracle_sim_views.py \
	   tests/oracle_types.py
# Nor have commands that a page shows, or a message: other tests have the like of them.
SHOWN   := tests/check_docs.py tests/check_examples.sh tests/oracle_examples.py
# Nor have tests that take long and reach no branch, or few, that no other one does: of the
# 28,868 that clang counted in the program (-fprofile-instr-generate) 28,600 are left, with
# those cases left out, too, that KVT_FEW and KVT_CASES leave out.
REACHED := tests/capture_module.py tests/golden_size.py \
	   $(patsubst %,tests/cli/%.bats,action changed convert diff_fault exec main merge mutate \
	   relayout slots symptoms transfer_matrix) \
	   $(patsubst %,tests/oracle_%.py,backends batches canonical causes content copy_blocks \
	   cut diagnose diff digest encoders exec guess heads keys llama_engine parts reblock relayout \
	   self shards slice)
# What takes longest begins first, or it would run alone at the end.
LONG    := tests/oracle_self.py tests/check_examples.sh tests/damaged_files.py tests/oracle_shards.py
LEFT    := $(if $(SAN),$(SOURCES) $(SHOWN) $(REACHED))
TESTS   := $(filter-out $(LEFT),$(LONG)) $(B)/check_kernels $(B)/check_gpu $(CORETEST) $(FORMATTEST) \
	   $(filter-out $(LONG) $(LEFT), \
	   $(sort $(wildcard tests/cli/*.bats tests/interop/*.bats tests/check_*.sh) \
	   $(if $(MPITOOL),$(wildcard tests/mpi/*.bats)) \
	   $(shell find tests -name '*.py' -perm -u+x)))

# ---- build -------------------------------------------------------------------

# A program or library appears whole, under its name, once it is made: what still
# runs the old one is not disturbed.
new      = -o $@.new $(1) && mv -f $@.new $@

all: $(TOOL) $(MPITOOL) $(if $(SAN),,$(LIBKVT) $(SHARED)) $(FILTER) $(B)/models man3	## build the program, the library and the HDF5 plugin

$(TOOL): $(CLI) $(FORMATS) $(WORKS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$^ $(FLIBS))

$(B)/kvtool-mpi: $(CLIMPI) $(FORMATS) $(WORKS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$^ $(FLIBS) $(MPILIBS))

# What may allocate: tiles of files, dumps, and what is done with them.
ENGINEROOMS := $(addprefix lib/,$(addsuffix /*.c,tile prefix snapshot run dump derived) ops/*/*.c)

$(LIB): $(CORE)
$(ENGINE): $(call objs,$(ENGINEROOMS))
$(SIM): $(call objs,sim/ops/*.c)
$(LIB) $(ENGINE) $(SIM):
	$(call say,AR,$@)
	$(Q)rm -f $@.new && ar rcs $@.new $^ && mv -f $@.new $@

# ---- libkvt --------------------------------------------------------------------

# Both forms of the library have the symbols of libkvt.map and no others: a program that
# is linked with it may have a parse() of its own.
MAP     := lib/kvt/libkvt.map
ENGINEOBJS := $(call objs,$(ENGINEROOMS))

$(LIBKVT): $(CORE) $(ENGINEOBJS) $(LIBFORMATS) $(MAP)
	$(call say,AR,$@)
	$(Q)$(LD) -r -o $@.o $(filter %.o,$^)
	$(Q)sed -n 's/^\t\(kvt_[a-z0-9_]*\);/\1/p' $(MAP) >$@.names
	$(Q)objcopy --keep-global-symbols=$@.names $@.o
	$(Q)rm -f $@.new && ar rcs $@.new $@.o && rm -f $@.o $@.names && mv -f $@.new $@

$(SHARED): $(CORE) $(ENGINEOBJS) $(LIBFORMATS) $(MAP)
	$(call say,LD,$@)
	$(Q)$(CC) $(SHARE) -Wl,-Bsymbolic -Wl,-soname,$(@F) -Wl,--version-script=$(MAP) \
		-Wl,--no-undefined $(call new,$(filter %.o,$^) $(LIBS))
	$(Q)ln -sf $(@F) $(B)/libkvt.so

# With all symbols, for tests that hold single functions against an engine's.
$(WHOLE): $(CORE) $(ENGINEOBJS) $(LIBFORMATS)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(SHARE) -Wl,--no-undefined $(call new,$(filter %.o,$^) $(LIBS))

# ---- device code ---------------------------------------------------------------

# An image that is not built is an empty file, and the program says so when asked.
IMAGES   := $(B)/kernels/cuda.image $(B)/kernels/hip.image
BODY     := kernels/gpu_body.inl kernels/gpu_plan.h lib/layout/cast_bits.h
compiler  = $(if $(filter 0,$(1)),,$(or $(2),$(if $(filter 1,$(1)),$(error $(3)))))
USE_NVCC := $(call compiler,$(CUDA),$(NVCC),CUDA=1: no nvcc in PATH or /usr/local/cuda/bin)
USE_HIPCC := $(call compiler,$(HIP),$(HIPCC),HIP=1: no hipcc in PATH)
CUDAFLAGS := -O3 -std=c++17 $(CUDA_GENCODE) -I. -Xcompiler -Wall -Xptxas -warn-spills \
	     -Werror all-warnings
HIPFLAGS := -O3 -std=c++17 -I. -Wall -Wextra -Werror \
	    -nogpuinc -nogpulib -nostdinc++ \
	    $(if $(findstring hipcc,$(HIPCC)),--genco,--offload-device-only)

$(B)/kernels/cuda.image: kernels/cuda/cuda_kernels.cu $(BODY) $(B)/gpuflags
	$(call say,$(if $(USE_NVCC),NVCC,NONE),$@)
	$(Q)mkdir -p $(@D); $(if $(USE_NVCC),$(USE_NVCC) $(CUDAFLAGS) -fatbin -o $@ $<,: >$@)
	@echo '$(CUDA_GENCODE)' | tr ' ,' '\n\n' | sed -n 's/^code=//p' | \
		sed 's/compute_\([0-9]*\)\([0-9]\)/and PTX \1.\2/' | paste -sd ' ' | tr -d '\n' >$(@:image=archs)

$(B)/kernels/hip.image: kernels/hip/hip_kernels.hip scripts/hip_image.sh $(BODY) $(B)/gpuflags
	$(call say,$(if $(USE_HIPCC),HIPCC,NONE),$@)
	$(Q)mkdir -p $(@D); $(if $(USE_HIPCC),scripts/hip_image.sh '$(USE_HIPCC)' $@ $< '$(HIP)' \
		'$(HIP_ARCH)' $(HIPFLAGS),: >$@; : >$(@:image=archs))

# With a note for CET: no jump leads into it.
IMAGEFLAGS := $(CFLAGS) $(if $(filter -fcf-protection,$(HARDCC)),-fcf-protection -include cet.h)
$(B)/kernels/gpu_images.o: kernels/gpu_images.S $(IMAGES) $(B)/flags
	$(call say,AS,$<)
	$(Q)$(CC) $(IMAGEFLAGS) -c -o $@ $< \
		-DKVT_CUDA_IMAGE='"$(B)/kernels/cuda.image"' -DKVT_CUDA_ARCHS='"$(B)/kernels/cuda.archs"' \
		-DKVT_HIP_IMAGE='"$(B)/kernels/hip.image"' -DKVT_HIP_ARCHS='"$(B)/kernels/hip.archs"'

# The assembler reads them.
$(B)/print/page/page.o: print/page/colours.css print/page/page.css print/page/view.js

$(B)/gpuflags: FORCE
	@mkdir -p $(@D); echo '$(USE_NVCC) $(CUDAFLAGS) $(USE_HIPCC) $(HIP) $(HIP_ARCH) $(HIPFLAGS)' | cmp -s - $@ || \
		echo '$(USE_NVCC) $(CUDAFLAGS) $(USE_HIPCC) $(HIP) $(HIP_ARCH) $(HIPFLAGS)' >$@

$(FILTER): $(PLUGIN) formats/hdf5/plugin.map
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(SHARE) -Wl,--no-undefined \
		-Wl,--version-script=$(filter %.map,$^) $(call new,$(filter %.o,$^) $(PLIBS))

$(B)/check_kernels: $(call objs,tests/check_kernels.c tests/kernel_*.c) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$^ -lpthread -lm)

# The kernels on the CPU, in place of a driver's library.  Speed is what it is
# compiled for, so that the tests stay quick.
$(B)/gpu_executor.so: tests/gpu_executor.cpp $(wildcard tests/gpu_exec_*.inl) tests/gpu_executor.h \
		$(BODY) $(B)/flags
	$(call say,CXX,$<)
	$(Q)$(CXX) -std=c++17 -Wall -Wextra -Wundef $(if $(WERROR),-Werror) -I. $(CPPFLAGS) \
		$(CFLAGS) $(SANFLAG) -fPIC -fvisibility=hidden -shared $(LDFLAGS) $(call new,$<)

# ASan looks for what throws when a program begins, and the executor is loaded later.
THROWS := $(if $(SAN),-Xlinker --no-as-needed -lstdc++)
$(B)/check_gpu: $(call objs,tests/check_gpu.c tests/gpu_*.c tests/kernel_case.c) $(LIB) \
		| $(B)/gpu_executor.so
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$(filter %.o %.a,$^) -ldl -lm $(THROWS))

# What makes calls of the program fail, for tests that preload it: no sanitizer, and
# none of the program's macros, which rename calls.
$(B)/fault_shim.so: tests/fault_shim.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) -std=gnu11 $(WARN) $(CFLAGS) -fPIC -shared $(call new,$< -ldl -lpthread)

# The program with device code that only the executor takes: what --device does is
# tested with or without nvcc.
$(B)/tests/standin_images.o: kernels/gpu_images.S $(B)/flags
	$(call say,AS,$@)
	$(Q)mkdir -p $(@D) && printf executor | tee $(@:.o=.archs) >$(@:.o=.image)
	$(Q)$(CC) $(IMAGEFLAGS) -c -o $@ $< $(foreach v,CUDA HIP,\
		-DKVT_$v_IMAGE='"$(@:.o=.image)"' -DKVT_$v_ARCHS='"$(@:.o=.archs)"')

$(STANDIN): $(CLI) $(FORMATS) $(WORKS) $(B)/tests/standin_images.o $(LIB) | $(B)/gpu_executor.so
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$^ $(FLIBS) $(THROWS))

# The library with it, for tensors on a device.
$(STANDINLIB): $(filter-out %/gpu_images.o,$(CORE)) $(ENGINEOBJS) $(LIBFORMATS) \
		$(B)/tests/standin_images.o $(MAP) | $(B)/gpu_executor.so
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(SHARE) -Wl,-Bsymbolic -Wl,-soname,$(@F) \
		-Wl,--version-script=$(MAP) -Wl,--no-undefined $(call new,$(filter %.o,$^) $(LIBS))

# The program with a transfer that loses something.
$(LOSSY): $(CLI) $(FORMATS) $(B)/tests/lossy_graft.o $(WORKS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) -Wl,--wrap=kvt_dump_graft -o $@ $^ $(FLIBS)

$(B)/tests/tour/%.o: %.c $(B)/flags
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL) $(FCFLAGS) -O1 -fno-inline -finstrument-functions -MMD -MP -c -o $@ $<
$(TOUR): $(TOURED:%=$(B)/tests/tour/%) $(B)/tests/tour_log.o \
		$(filter-out $(TOURED:%=$(B)/%),$(CLI) $(FORMATS)) $(WORKS) $(LIB) CONTRIBUTING.md
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$(filter %.o %.a,$^) $(FLIBS))

# The program as it is where there is no archive of HDF5.
$(B)/kvtool_opening: $(CLI) $(READERS) $(OPENED) $(WORKS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$^ $(LIBS))

$(CORETEST): $(B)/%: $(B)/%.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$^ $(CMOCKA) -lm)

$(B)/tests/unit/dump/test_public: | $(B)/gpu_executor.so
# Some call HDF5 themselves.
$(FORMATTEST): MOCK := $(CMOCKA) $(if $(STATICLIBS),,-Wl,--as-needed $(call pkg,--libs,hdf5-serial))
$(FORMATTEST) $(BENCH) $(CHAIN) $(REFERENCE): $(B)/%: $(B)/%.o $(FORMATS) $(WORKS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(call new,$^ $(FLIBS) $(MOCK))

# The reader of contracts is one of cli/ that needs nothing of the rest.
$(B)/tests/fuzz/fuzz_contract: $(call objs,cli/expect/contract.c cli/expect/keys.c)
$(B)/tests/fuzz/fuzz_wire: $(call objs,sim/wire/handshake.c)

# libFuzzer brings its own main() (make fuzz); else one that reads the files named.
FUZZMAIN := $(if $(findstring fuzzer,$(SAN)),-fsanitize=fuzzer,$(B)/tests/fuzz/standalone.o)
$(FUZZ): $(B)/%: $(B)/%.o $(filter %.o,$(FUZZMAIN)) $(FORMATS) $(WORKS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK) $(filter-out %.o,$(FUZZMAIN)) \
		$(call new,$(filter %.o,$^) $(WORKS) $(LIB) $(FLIBS))

# Texts that only the program reads.
$(B)/tests/fuzz/fuzz_compare: $(addprefix $(B)/,$(addprefix cli/,beside.o model_ids.o opt.o opt_mistakes.o complain.o) sim/cmd/compare.o \
	$(addprefix print/out/,json_out.o leftovers.o plain.o streams.o signals.o text_file.o))

$(MPIOBJS): ALL += $(MPIFLAGS)
# Loops over numbers, which compilers make vectors of with -O3 only.
$(addprefix $(B)/lib/layout/,cast_elements.o content_write.o ggml.o): ALL += $(if $(filter -O0,$(CFLAGS)),,-O3)
$(foreach room,lib/tile lib/snapshot lib/run lib/dump lib/derived lib/ops formats print sim cli tests bench,$(B)/$(room)/%.o): ALL += $(FCFLAGS)
$(B)/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL) -MMD -MP -c -o $@ $<

# What libkvt promises, and the pages of those headers.
HEADERS := $(shell scripts/public.pl --list)
MAN3    := $(patsubst lib/kvt/%.h,$(B)/man3/kvt_%.3,$(filter-out %/kvt.h,$(HEADERS)))
$(B)/man3/kvt_%.3: lib/kvt/%.h scripts/man3.pl scripts/public.pl
	$(Q)mkdir -p $(@D) && scripts/man3.pl $< >$@.new && mv -f $@.new $@
man3: $(MAN3)

# Beside the program, as if it were installed.
$(B)/models:
	@mkdir -p $(@D); ln -s '$(CURDIR)/models' $@

# The plugin is loaded into other programs: no sanitizer, and one symbol to see.
$(B)/pic/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(STD) $(WARN) -I. $(HARDCC) $(CPPFLAGS) $(CFLAGS) $(FCFLAGS) \
		-fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(READERS) $(CLI) $(PLUGIN): | libraries
$(B)/hdf5.o: $(LINKED) $(if $(STATICLIBS),,$(OPENED) $(B)/hdf5.libs)
	$(Q)cp $(if $(STATICLIBS),$<,$$(test -s $(B)/hdf5.libs && echo $(LINKED) || echo $(OPENED))) $@
$(OPENED): ALL += -DKVT_HDF5_LIBRARY="\"$$(cat $(B)/hdf5.name)\""
$(OPENED): $(B)/hdf5.libs
$(B)/hdf5.libs: scripts/hdf5_libs.sh $(B)/flags | libraries
	$(Q)CC='$(CC)' $< $(HDF5) $(@D) >$@.new && mv -f $@.new $@

ifneq ($(STATICLIBS),)
$(B)/flags libraries: | $(STATICLIBS)
# It knows whether they are what CC and HARDEN want.
$(STATICLIBS): scripts/static_libs.sh FORCE
	$(Q)CC='$(CC)' HARDEN='$(HARDCC)' $< $(@D)
else
libraries:
	@pkg-config --print-errors --exists hdf5-serial $(FPKG) || \
		{ echo "kvtool needs these libraries; 'make deps' installs them" >&2; exit 1; }
endif

# A file that changes only when its content does: objects depend on it, so new
# flags, or other static libraries, rebuild what they must and nothing else.
FLAGS := $(CC) $(LINK) $(FCFLAGS) $(HDF5) $(FLIBS)
$(B)/flags: FORCE
	@mkdir -p $(@D); now() { echo '$(subst ','\'',$(FLAGS))'; cat /dev/null $(STATICLIBS); }; \
		now | cmp -s - $@ || now >$@

# ---- the two commands of the README, and the rest ------------------------------

# A package may bring a .pc file, and those are read when make starts: so the
# packages come first and another make does the work, on every processor unless
# -j was given.
demo:	## install what is missing, build, show on real data that relayout is exact
check:	## install what is missing, build, run every test
bench:	## measure kernels, codecs and files
html:	## write the manual as pages for a browser, into build/html
lint:	## pages and scripts, by the programs that know them
fuzz:	## run each fuzzer for FUZZ_SECONDS (60)
check-valgrind:	## unit tests and the main commands under valgrind
check-faults:	## make each call of the system fail, for FAULT_SECONDS (0: every case)
check-environments:	## what drives the program, in a read-only tree with a space, as nobody
check-engines:	## run real engines beside kvtool, those of ENGINES or all (PyPI; about 6 GB each)
demo check bench html lint fuzz check-valgrind check-environments check-faults check-engines:
	@$(DEPS) $@
	@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS)) run-$@

check-fresh:	## as root: what README says first, in a bare Debian 12
	@$(DEPS) $@
	@scripts/fresh_root.sh 'make demo' 'make check'

pictures: $(TOOL)	## draw docs/pictures again, with the package chromium
	@KVTOOL=$(abspath $(TOOL)) scripts/pictures.py

OUT     ?= $(B)/gpu-check
gpu-check:	## on a machine with an NVIDIA GPU: check and measure the kernels, into OUT
	@scripts/gpu_check.sh $(OUT)

deps:	## install the Debian packages that building and testing need
	@$(DEPS) check

export KVTOOL         := $(abspath $(TOOL))
export KVT_BUILD      := $(abspath $(B))
export KVT_PLUGIN_DIR := $(abspath $(B)/plugin)
export KVT_CFLAGS     := $(CFLAGS) $(SANFLAG)
export KVT_HARDCC     := $(HARDCC)
export KVT_NVCC       := $(USE_NVCC)
export KVT_HIPCC      := $(USE_HIPCC)
export CC CXX
# A sanitizer ends a program with 1, which kvtool uses for "differs".
export ASAN_OPTIONS  := exitcode=99:$(ASAN_OPTIONS)
export UBSAN_OPTIONS := exitcode=99:print_stacktrace=1:$(UBSAN_OPTIONS)
export LSAN_OPTIONS  := suppressions='$(CURDIR)/tests/lsan.supp':print_suppressions=0:$(LSAN_OPTIONS)

run-demo: all
	@scripts/demo.sh $(B)/demo

run-check: all $(TESTS) $(FUZZ) $(CHAIN) $(REFERENCE) $(STANDIN) $(STANDINLIB) $(LOSSY) $(OPENING) \
		$(if $(SAN),,$(TOUR)) $(B)/fault_shim.so
	@perl tests/harness.pl -j $(JOBS) $(TESTS)

QUICK := convert describe diff digest doctor fsck merge mutate reblock relayout size slice transfer where
quick: all	## a minute of check: units, and what the main commands print
	@$(MAKE) --no-print-directory -j$(JOBS) run-check TESTS='$(CORETEST) $(FORMATTEST) $(QUICK:%=tests/cli/%.bats)'

check-core: $(B)/check_kernels $(if $(CMOCKA),$(CORETEST))	## test lib/ and kernels/ alone: only a C compiler
	@$(if $(CMOCKA),,echo "check-core: no cmocka here: the unit tests of lib/ are left out")
	@for t in $^; do echo "# $$t"; $$t || exit 1; done

run-check-valgrind: all $(CORETEST) $(FORMATTEST)
	@perl tests/harness.pl scripts/valgrind.sh

FAULT_SECONDS ?= 0
# In whose code a call fails is told by the name of its file.
run-check-faults: $(OPENING) $(B)/fault_shim.so
	@KVTOOL='$(abspath $(OPENING))' python3 tests/check_faults.py --seconds=$(FAULT_SECONDS)

# What looks at the sources has nothing to tell there, but what reads the program's words.
DRIVERS := $(sort $(wildcard tests/cli/*.bats) tests/check_man.sh tests/check_install.sh \
	   $(filter-out $(SOURCES),$(wildcard tests/check_*.sh)))
run-check-environments: all $(FUZZ) $(CHAIN) $(REFERENCE) $(STANDIN) $(STANDINLIB) $(LOSSY) $(OPENING) \
		$(TOUR) $(B)/fault_shim.so $(B)/check_gpu
	@B=$(B) JOBS=$(JOBS) scripts/environments.sh $(DRIVERS)

# Optional: not part of check.  Each engine in an environment of its own in ENGINE_DIR.
ENGINES    ?=
SEED       ?= 0
ENGINE_DIR ?= $(B)/engines
run-check-engines: all $(REFERENCE) $(WHOLE)
	@/usr/bin/python3 tests/engines/suite.py run --dir="$(ENGINE_DIR)" --seed=$(SEED) \
		$(ENGINES:%=--engine=%)

run-html: $(TOOL) man3
	@scripts/manual.py $(B)/html $(PAGES) $(MAN3)
	@du -sh --apparent-size $(B)/html

run-lint: man3
	@perl tests/harness.pl scripts/lint.sh

run-bench: all $(B)/check_kernels $(BENCH) $(OPENING)
	@bench/run.sh

run-fuzz:
	@$(MAKE) --no-print-directory B=$(B)/fuzz CC=clang SAN=fuzzer-no-link,address,undefined CUDA=0 HIP=0 fuzz-programs
	@scripts/fuzz.sh $(B)/fuzz $(notdir $(FUZZ))
fuzz-programs: $(FUZZ)

# ---- install -------------------------------------------------------------------

VERSION := $(shell sed -n 's/^.define KVT_VERSION "\(.*\)"/\1/p' lib/kvt/kvt.h)
PAGES   := $(wildcard man/*.[1357])
MODELS  := $(wildcard models/*.json)
put      = install -D -m $(1) $(2) "$(DESTDIR)$(3)"

install: all	## install under PREFIX (/usr/local), or DESTDIR/PREFIX
	@$(MAKE) --no-print-directory install-built

# Only reads what was built: nothing in it depends on where it will lie.
install-built:
	$(call put,755,$(TOOL),$(bindir)/kvtool)
	$(if $(MPITOOL),$(call put,755,$(MPITOOL),$(bindir)/kvtool-mpi))
	$(call put,755,$(FILTER),$(HDF5_PLUGIN_DIR)/$(notdir $(FILTER)))
	$(call put,644,$(LIBKVT),$(libdir)/libkvt.a)
	$(call put,755,$(SHARED),$(libdir)/$(notdir $(SHARED)))
	ln -sf $(notdir $(SHARED)) "$(DESTDIR)$(libdir)/libkvt.so"
	for h in $(HEADERS); do to="$(DESTDIR)$(includedir)/kvt/$${h##*/}"; \
		install -D -m 644 $$h "$$to" && scripts/public.pl $$h >"$$to" && \
		sed -i 's|"lib/kvt/\(.*\.h\)"|"\1"|' "$$to" || exit 1; done
	$(call put,644,lib/kvt.pc.in,$(libdir)/pkgconfig/kvt.pc)
	sed -i 's|@prefix@|$(PREFIX)|; s|@libdir@|$(libdir)|; s|@includedir@|$(includedir)|; s|@version@|$(VERSION)|; s|@requires@|$(if $(STATICLIBS),hdf5-serial )$(FPKG)|' \
		"$(DESTDIR)$(libdir)/pkgconfig/kvt.pc"
	$(call put,644,cli/completion.bash,$(bashcompdir)/kvtool)
	$(call put,644,cli/completion.zsh,$(zshcompdir)/_kvtool)
	for p in $(PAGES) $(MAN3); do $(call put,644,$$p,$(mandir)/man$${p##*.}/$${p##*/}) || exit 1; done
	for m in $(MODELS); do $(call put,644,$$m,$(modelsdir)/$${m##*/}) || exit 1; done

# For packages: pip takes the wheel.
install-python:
	@python3 python/build_backend.py module "$(DESTDIR)$(pythondir)"

uninstall:	## remove what install put there
	rm -f $(foreach f,$(bindir)/kvtool $(bindir)/kvtool-mpi $(HDF5_PLUGIN_DIR)/$(notdir $(FILTER)) \
		$(libdir)/libkvt.a $(libdir)/libkvt.so $(libdir)/$(notdir $(SHARED)) \
		$(libdir)/pkgconfig/kvt.pc \
		$(addprefix $(includedir)/kvt/,$(notdir $(HEADERS))) \
		$(bashcompdir)/kvtool $(zshcompdir)/_kvtool \
		$(addprefix $(modelsdir)/,$(notdir $(MODELS))) \
		$(foreach p,$(PAGES) $(MAN3),$(mandir)/man$(subst .,,$(suffix $(p)))/$(notdir $(p))), \
		"$(DESTDIR)$f")

# ---- wheel ---------------------------------------------------------------------

# python/build_backend.py is what pip runs, too; it calls make STATIC=1 for what is not
# Python.  CUDA and HIP mean the same there.
DIST    ?= dist

wheel:	## build a wheel of Python into dist/, with all libraries inside
	@$(DEPS) $@
	@python3 python/build_backend.py wheel '$(DIST)'

sdist:	## build the source distribution into dist/, of what git tracks
	@python3 python/build_backend.py sdist '$(DIST)'

check-wheel: wheel sdist	## install wheel and sources into fresh environments and use them (PyPI)
	@DIST='$(DIST)' perl tests/harness.pl scripts/check_wheel.sh

check-install: wheel	## as root: the wheel, and the steps of the Dockerfile, in a bare Debian 12
	@$(DEPS) check-fresh
	@DIST='$(DIST)' perl tests/harness.pl scripts/check_install.sh

deb:	## build packages for Debian into dist/, and hold them against lintian
	@$(DEPS) $@
	@scripts/deb.sh '$(B)' '$(abspath $(DIST))'

clean:	## remove what was built
	rm -rf $(B)

help:	## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' Makefile

FORCE:
.PHONY: all man3 demo check bench html lint fuzz check-valgrind check-environments check-faults \
	check-engines run-check-engines check-fresh deps run-demo run-check check-core run-check-valgrind run-check-environments \
	run-check-faults run-html run-lint run-bench run-fuzz fuzz-programs libraries gpu-check pictures \
	install install-built install-python uninstall deb wheel sdist check-wheel check-install clean help FORCE
.DELETE_ON_ERROR:

-include $(shell find $(B) -name '*.d' 2>/dev/null)
