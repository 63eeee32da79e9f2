/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c - what HDF5 asks a plugin for: gives filter 32015 to h5dump,
 * h5repack, h5py and others that find it on HDF5_PLUGIN_PATH
 */
#include "formats/hdf5/zstd_filter.h"

#include <H5PLextern.h>

H5PL_type_t H5PLget_plugin_type(void)
{
	return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void)
{
	return &kvt_zstd_filter;
}
