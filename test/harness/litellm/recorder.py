"""Writes LiteLLM's own record of every call, one JSON object per line."""

import json
import os

from litellm.integrations.custom_logger import CustomLogger


def write(status, kwargs):
    call = kwargs.get("standard_logging_object") or {}
    metadata = call.get("metadata") or {}
    row = {
        "status": status,
        "callId": kwargs.get("litellm_call_id"),
        "endUser": call.get("end_user"),
        "spendLogsMetadata": metadata.get("spend_logs_metadata"),
        "model": call.get("model"),
        "modelGroup": call.get("model_group"),
        "cost": call.get("response_cost"),
        "promptTokens": call.get("prompt_tokens"),
        "completionTokens": call.get("completion_tokens"),
        "stream": bool(call.get("stream")),
        "tags": call.get("request_tags"),
        "callType": call.get("call_type"),
        "traceId": call.get("trace_id"),
        "apiBase": call.get("api_base"),
    }
    with open(os.environ["COGNI_RECORDS"], "a", encoding="utf-8") as records:
        records.write(json.dumps(row, default=str) + "\n")


class Recorder(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        write("success", kwargs)

    async def async_log_failure_event(self, kwargs, response_obj, start_time, end_time):
        write("failure", kwargs)


handler = Recorder()
