/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd_filter.h - HDF5 filter 32015 (zstd), for the program and for the plugin
 */
#ifndef KVT_ZSTD_FILTER_H
#define KVT_ZSTD_FILTER_H

#include <hdf5.h>

enum { KVT_ZSTD_FILTER = 32015 };

/*
 * What H5Zregister() and a plugin hand to HDF5.  cd_values[0] is the level, 1
 * if there is none; the callbacks may run in any thread.
 */
extern const H5Z_class2_t kvt_zstd_filter;

#endif
