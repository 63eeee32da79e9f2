# SPDX-License-Identifier: Apache-2.0
"""
vllm_capture_connector.py - an example: a connector of vLLM that captures the
caches of its worker with kvtool_capture.py

Written from the connector API of vLLM of mid 2026 (KVConnectorBase_V1, [B, H, N, C]
views of the layers) and NOT run against a live engine here: take it as a pattern.

    PYTHONPATH=contrib vllm serve MODEL --kv-transfer-config '{
        "kv_connector": "CaptureConnector", "kv_role": "kv_both",
        "kv_connector_module_path": "vllm_capture_connector",
        "kv_connector_extra_config": {"capture_path": "/tmp/kv"}}'
    touch /tmp/kv.now        # the next step writes /tmp/kv.rank0.safetensors

It neither loads nor stores anything else.
"""
import os
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1, KVConnectorMetadata)
from vllm.distributed.parallel_state import (
    get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size)

import kvtool_capture


@dataclass
class CaptureMetadata(KVConnectorMetadata):
    # request: block ids of each group of layers, tokens in the cache after the step
    tables: dict = field(default_factory=dict)
    tokens: dict = field(default_factory=dict)


class CaptureConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config=vllm_config, role=role,
                         kv_cache_config=kv_cache_config)
        self._path = self._kv_transfer_config.get_from_extra_config(
            "capture_path", "kv")
        self._model = vllm_config.model_config.model
        self._latent = vllm_config.model_config.use_mla
        self._heads = vllm_config.model_config.get_total_num_kv_heads()
        self._tables, self._tokens, self._caches = {}, {}, {}

    # ---- in the scheduler ---------------------------------------------------

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return 0, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        pass

    def build_connector_meta(self, scheduler_output):
        step = scheduler_output.num_scheduled_tokens
        for new in scheduler_output.scheduled_new_reqs:
            self._tables[new.req_id] = [list(ids) for ids in new.block_ids]
            self._tokens[new.req_id] = new.num_computed_tokens + step[new.req_id]
        cached = scheduler_output.scheduled_cached_reqs
        for i, request in enumerate(cached.req_ids):
            more = cached.new_block_ids[i]
            if request in cached.resumed_req_ids:
                self._tables[request] = [list(ids) for ids in more]
            elif more is not None:
                for table, ids in zip(self._tables[request], more):
                    table += ids
            self._tokens[request] = cached.num_computed_tokens[i] + step[request]
        for request in scheduler_output.finished_req_ids:
            self._tables.pop(request, None)
            self._tokens.pop(request, None)
        return CaptureMetadata({r: [list(t) for t in tables]
                                for r, tables in self._tables.items()},
                               dict(self._tokens))

    # ---- in the worker ------------------------------------------------------

    def register_kv_caches(self, kv_caches):
        self._caches = kv_caches

    def start_load_kv(self, forward_context, **kwargs):
        pass

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        if not os.path.exists(f"{self._path}.now"):
            return
        known = self._get_connector_metadata()
        rank = get_tensor_model_parallel_rank()
        size = get_tensor_model_parallel_world_size()
        # a single group has one table a request, whatever vLLM calls its groups
        tables = {r: t[0] if len(t) == 1 else t for r, t in known.tables.items()}
        kvtool_capture.capture(
            f"{self._path}.rank{rank}.safetensors", self._caches, "BHNC",
            block_tables=tables, num_tokens=known.tokens, blocks="used",
            latent=self._latent, model=self._model, total_kv_heads=self._heads,
            parallel={"tp_size": size, "tp_rank": rank})
        if rank == 0:
            os.remove(f"{self._path}.now")
