/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.h - HDF5 through one table of pointers
 *
 * Debian's shared library brings 35 others, curl and Kerberos among them, and they take
 * longer to load than most commands run.  So a program is linked with the archive where
 * there is one that does without them (linked.c), and libkvt opens the shared library
 * when the first file asks for it (opened.c).  The calls are written as ever: below, the
 * names of HDF5 stand for members of the table.  A name that is missing here is one that
 * libkvt.so cannot be linked with.
 */
#ifndef KVT_HDF5_CALLS_H
#define KVT_HDF5_CALLS_H

#include <hdf5.h>
#include <stdbool.h>

#include "lib/kvt/base.h"

#define KVT_H5_FUNCTIONS(X) \
	X(H5Acreate2) X(H5Aexists) X(H5Aget_space) X(H5Aget_type) X(H5Aopen) \
	X(H5Aread) X(H5Awrite) X(H5Dcreate2) X(H5Dget_chunk_storage_size) \
	X(H5Dget_create_plist) X(H5Dget_offset) X(H5Dget_space) X(H5Dget_storage_size) \
	X(H5Dget_type) X(H5Dread) X(H5Dread_chunk) X(H5Dwrite) X(H5Dwrite_chunk) \
	X(H5Eget_auto2) X(H5Eget_current_stack) X(H5Eget_num) X(H5Epush2) \
	X(H5Eset_auto2) X(H5Eset_current_stack) X(H5Ewalk2) X(H5FDregister) \
	X(H5Fclose) X(H5Fcreate) X(H5Fflush) X(H5Fget_create_plist) \
	X(H5Fget_vfd_handle) X(H5Fopen) X(H5Gcreate2) X(H5Gget_info) X(H5Gopen2) \
	X(H5Idec_ref) X(H5Iget_name) X(H5Iget_type) X(H5Lexists) X(H5Lget_info) \
	X(H5Literate) X(H5Oopen) X(H5Pcreate) X(H5Pget_chunk) X(H5Pget_chunk_opts) \
	X(H5Pget_external_count) X(H5Pget_filter2) X(H5Pget_layout) X(H5Pget_nfilters) \
	X(H5Pget_userblock) X(H5Pget_virtual_count) X(H5Pget_virtual_dsetname) \
	X(H5Pget_virtual_filename) X(H5Pget_virtual_srcspace) X(H5Pget_virtual_vspace) \
	X(H5Pset_alignment) X(H5Pset_alloc_time) X(H5Pset_attr_phase_change) \
	X(H5Pset_chunk) X(H5Pset_driver) X(H5Pset_fclose_degree) X(H5Pset_fill_time) \
	X(H5Pset_filter) X(H5Pset_fletcher32) X(H5Pset_libver_bounds) \
	X(H5Pset_obj_track_times) X(H5Pset_shuffle) X(H5Pset_sieve_buf_size) \
	X(H5Pset_virtual) X(H5Screate) X(H5Screate_simple) X(H5Sget_select_bounds) \
	X(H5Sget_select_npoints) X(H5Sget_select_type) X(H5Sget_simple_extent_dims) \
	X(H5Sget_simple_extent_ndims) X(H5Sget_simple_extent_npoints) \
	X(H5Sget_simple_extent_type) X(H5Sselect_all) X(H5Sselect_hyperslab) \
	X(H5Tcopy) X(H5Tequal) X(H5Tget_class) X(H5Tget_size) X(H5Tget_strpad) \
	X(H5Tis_variable_str) X(H5Tset_cset) X(H5Tset_ebias) X(H5Tset_fields) \
	X(H5Tset_size) X(H5Tset_strpad) X(H5Zregister) X(H5check_version) \
	X(H5dont_atexit) X(H5open)

/* ids, which HDF5's macros name after they have called H5open() */
#define KVT_H5_IDS(X) \
	X(H5E_ERR_CLS_g) X(H5E_IO_g) X(H5E_SYSERRSTR_g) X(H5P_CLS_DATASET_CREATE_ID_g) \
	X(H5P_CLS_FILE_ACCESS_ID_g) X(H5P_CLS_FILE_CREATE_ID_g) \
	X(H5P_CLS_GROUP_CREATE_ID_g) X(H5T_C_S1_g) X(H5T_IEEE_F32LE_g) \
	X(H5T_IEEE_F64LE_g) X(H5T_STD_I16LE_g) X(H5T_STD_I32LE_g) X(H5T_STD_I64LE_g) \
	X(H5T_STD_U16LE_g) X(H5T_STD_U32LE_g) X(H5T_STD_U64LE_g) X(H5T_STD_U8LE_g)

struct kvt_h5_calls {
#define KVT_H5_MEMBER(name) __typeof__(name) *name;
	KVT_H5_FUNCTIONS(KVT_H5_MEMBER)
	KVT_H5_IDS(KVT_H5_MEMBER)
};

extern struct kvt_h5_calls kvt_h5;

/*
 * Before the first call, and before entering: KVT_UNSUPPORTED, with "PATH: ...", if there
 * is no HDF5 to be opened.
 */
KVT_MUST_CHECK enum kvt_status kvt_h5_load(const char *path, struct kvt_error *err);

/* The file that is opened when it is needed; NULL: HDF5 is here from the start. */
const char *kvt_h5_library(void);

#ifndef KVT_H5_TABLE		/* the two files that fill it see HDF5 as it is */

#define H5Acreate2                  kvt_h5.H5Acreate2
#define H5Aexists                   kvt_h5.H5Aexists
#define H5Aget_space                kvt_h5.H5Aget_space
#define H5Aget_type                 kvt_h5.H5Aget_type
#define H5Aopen                     kvt_h5.H5Aopen
#define H5Aread                     kvt_h5.H5Aread
#define H5Awrite                    kvt_h5.H5Awrite
#define H5Dcreate2                  kvt_h5.H5Dcreate2
#define H5Dget_chunk_storage_size   kvt_h5.H5Dget_chunk_storage_size
#define H5Dget_create_plist         kvt_h5.H5Dget_create_plist
#define H5Dget_offset               kvt_h5.H5Dget_offset
#define H5Dget_space                kvt_h5.H5Dget_space
#define H5Dget_storage_size         kvt_h5.H5Dget_storage_size
#define H5Dget_type                 kvt_h5.H5Dget_type
#define H5Dread                     kvt_h5.H5Dread
#define H5Dread_chunk               kvt_h5.H5Dread_chunk
#define H5Dwrite                    kvt_h5.H5Dwrite
#define H5Dwrite_chunk              kvt_h5.H5Dwrite_chunk
#define H5Eget_auto2                kvt_h5.H5Eget_auto2
#define H5Eget_current_stack        kvt_h5.H5Eget_current_stack
#define H5Eget_num                  kvt_h5.H5Eget_num
#define H5Epush2                    kvt_h5.H5Epush2
#define H5Eset_auto2                kvt_h5.H5Eset_auto2
#define H5Eset_current_stack        kvt_h5.H5Eset_current_stack
#define H5Ewalk2                    kvt_h5.H5Ewalk2
#define H5FDregister                kvt_h5.H5FDregister
#define H5Fclose                    kvt_h5.H5Fclose
#define H5Fcreate                   kvt_h5.H5Fcreate
#define H5Fflush                    kvt_h5.H5Fflush
#define H5Fget_create_plist         kvt_h5.H5Fget_create_plist
#define H5Fget_vfd_handle           kvt_h5.H5Fget_vfd_handle
#define H5Fopen                     kvt_h5.H5Fopen
#define H5Gcreate2                  kvt_h5.H5Gcreate2
#define H5Gget_info                 kvt_h5.H5Gget_info
#define H5Gopen2                    kvt_h5.H5Gopen2
#define H5Idec_ref                  kvt_h5.H5Idec_ref
#define H5Iget_name                 kvt_h5.H5Iget_name
#define H5Iget_type                 kvt_h5.H5Iget_type
#define H5Lexists                   kvt_h5.H5Lexists
#define H5Lget_info                 kvt_h5.H5Lget_info
#define H5Literate                  kvt_h5.H5Literate
#define H5Oopen                     kvt_h5.H5Oopen
#define H5Pcreate                   kvt_h5.H5Pcreate
#define H5Pget_chunk                kvt_h5.H5Pget_chunk
#define H5Pget_chunk_opts           kvt_h5.H5Pget_chunk_opts
#define H5Pget_external_count       kvt_h5.H5Pget_external_count
#define H5Pget_filter2              kvt_h5.H5Pget_filter2
#define H5Pget_layout               kvt_h5.H5Pget_layout
#define H5Pget_nfilters             kvt_h5.H5Pget_nfilters
#define H5Pget_userblock            kvt_h5.H5Pget_userblock
#define H5Pget_virtual_count        kvt_h5.H5Pget_virtual_count
#define H5Pget_virtual_dsetname     kvt_h5.H5Pget_virtual_dsetname
#define H5Pget_virtual_filename     kvt_h5.H5Pget_virtual_filename
#define H5Pget_virtual_srcspace     kvt_h5.H5Pget_virtual_srcspace
#define H5Pget_virtual_vspace       kvt_h5.H5Pget_virtual_vspace
#define H5Pset_alignment            kvt_h5.H5Pset_alignment
#define H5Pset_alloc_time           kvt_h5.H5Pset_alloc_time
#define H5Pset_attr_phase_change    kvt_h5.H5Pset_attr_phase_change
#define H5Pset_chunk                kvt_h5.H5Pset_chunk
#define H5Pset_driver               kvt_h5.H5Pset_driver
#define H5Pset_fclose_degree        kvt_h5.H5Pset_fclose_degree
#define H5Pset_fill_time            kvt_h5.H5Pset_fill_time
#define H5Pset_filter               kvt_h5.H5Pset_filter
#define H5Pset_fletcher32           kvt_h5.H5Pset_fletcher32
#define H5Pset_libver_bounds        kvt_h5.H5Pset_libver_bounds
#define H5Pset_obj_track_times      kvt_h5.H5Pset_obj_track_times
#define H5Pset_shuffle              kvt_h5.H5Pset_shuffle
#define H5Pset_sieve_buf_size       kvt_h5.H5Pset_sieve_buf_size
#define H5Pset_virtual              kvt_h5.H5Pset_virtual
#define H5Screate                   kvt_h5.H5Screate
#define H5Screate_simple            kvt_h5.H5Screate_simple
#define H5Sget_select_bounds        kvt_h5.H5Sget_select_bounds
#define H5Sget_select_npoints       kvt_h5.H5Sget_select_npoints
#define H5Sget_select_type          kvt_h5.H5Sget_select_type
#define H5Sget_simple_extent_dims   kvt_h5.H5Sget_simple_extent_dims
#define H5Sget_simple_extent_ndims  kvt_h5.H5Sget_simple_extent_ndims
#define H5Sget_simple_extent_npoints kvt_h5.H5Sget_simple_extent_npoints
#define H5Sget_simple_extent_type   kvt_h5.H5Sget_simple_extent_type
#define H5Sselect_all               kvt_h5.H5Sselect_all
#define H5Sselect_hyperslab         kvt_h5.H5Sselect_hyperslab
#define H5Tcopy                     kvt_h5.H5Tcopy
#define H5Tequal                    kvt_h5.H5Tequal
#define H5Tget_class                kvt_h5.H5Tget_class
#define H5Tget_size                 kvt_h5.H5Tget_size
#define H5Tget_strpad               kvt_h5.H5Tget_strpad
#define H5Tis_variable_str          kvt_h5.H5Tis_variable_str
#define H5Tset_cset                 kvt_h5.H5Tset_cset
#define H5Tset_ebias                kvt_h5.H5Tset_ebias
#define H5Tset_fields               kvt_h5.H5Tset_fields
#define H5Tset_size                 kvt_h5.H5Tset_size
#define H5Tset_strpad               kvt_h5.H5Tset_strpad
#define H5Zregister                 kvt_h5.H5Zregister
#define H5check_version             kvt_h5.H5check_version
#define H5dont_atexit               kvt_h5.H5dont_atexit
#define H5open                      kvt_h5.H5open

#define H5E_ERR_CLS_g               (*kvt_h5.H5E_ERR_CLS_g)
#define H5E_IO_g                    (*kvt_h5.H5E_IO_g)
#define H5E_SYSERRSTR_g             (*kvt_h5.H5E_SYSERRSTR_g)
#define H5P_CLS_DATASET_CREATE_ID_g (*kvt_h5.H5P_CLS_DATASET_CREATE_ID_g)
#define H5P_CLS_FILE_ACCESS_ID_g    (*kvt_h5.H5P_CLS_FILE_ACCESS_ID_g)
#define H5P_CLS_FILE_CREATE_ID_g    (*kvt_h5.H5P_CLS_FILE_CREATE_ID_g)
#define H5P_CLS_GROUP_CREATE_ID_g   (*kvt_h5.H5P_CLS_GROUP_CREATE_ID_g)
#define H5T_C_S1_g                  (*kvt_h5.H5T_C_S1_g)
#define H5T_IEEE_F32LE_g            (*kvt_h5.H5T_IEEE_F32LE_g)
#define H5T_IEEE_F64LE_g            (*kvt_h5.H5T_IEEE_F64LE_g)
#define H5T_STD_I16LE_g             (*kvt_h5.H5T_STD_I16LE_g)
#define H5T_STD_I32LE_g             (*kvt_h5.H5T_STD_I32LE_g)
#define H5T_STD_I64LE_g             (*kvt_h5.H5T_STD_I64LE_g)
#define H5T_STD_U16LE_g             (*kvt_h5.H5T_STD_U16LE_g)
#define H5T_STD_U32LE_g             (*kvt_h5.H5T_STD_U32LE_g)
#define H5T_STD_U64LE_g             (*kvt_h5.H5T_STD_U64LE_g)
#define H5T_STD_U8LE_g              (*kvt_h5.H5T_STD_U8LE_g)

#endif
#endif
