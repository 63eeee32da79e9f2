/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_images.S - the device code, as bytes of the program
 *
 * make gives the names of the files.  One that is empty was not built.  4096 is
 * what both loaders like.
 */
	.section .rodata
	.balign 4096
	.globl kvt_cuda_image, kvt_cuda_image_end, kvt_cuda_archs
kvt_cuda_image:
	.incbin KVT_CUDA_IMAGE
kvt_cuda_image_end:
	.byte 0
kvt_cuda_archs:
	.incbin KVT_CUDA_ARCHS
	.byte 0

	.balign 4096
	.globl kvt_hip_image, kvt_hip_image_end, kvt_hip_archs
kvt_hip_image:
	.incbin KVT_HIP_IMAGE
kvt_hip_image_end:
	.byte 0
kvt_hip_archs:
	.incbin KVT_HIP_ARCHS
	.byte 0

	.section .note.GNU-stack, "", %progbits
