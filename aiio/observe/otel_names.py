"""The one table of names that OpenTelemetry gets to see; no other file spells one.

Source: OpenTelemetry semantic conventions 1.41.0, "Generative AI" (spans, agent spans, metrics); the
durations of agents and tools: semantic-conventions-genai v0.1.0, "Generative AI metrics". What they have no
name for is named `aiio.*`.
"""

from __future__ import annotations

from typing import Final

from aiio.context.types import MessageType

# --- what is done: `gen_ai.operation.name`, the first word of a span's name ---
CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_WORKFLOW: Final = "invoke_workflow"

# --- attributes of spans and metrics ---
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
HTTP_STATUS: Final = "http.response.status_code"

REQUEST_SETTINGS: Final = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
"""By the setting that holds it; all are numbers."""
USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
"""By the counter in a usage dict."""

# --- content, on opt-in only ---
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
ROLES: Final = {
    MessageType.SYSTEM: "system",
    MessageType.USER: "user",
    MessageType.ASSISTANT: "assistant",
    MessageType.TOOL_RESULT: "tool",
}

# --- ours ---
OUTCOME: Final = "aiio.outcome"
"""One word, as the log has it: `done`, an error kind, what stopped an agent, what a tool came to."""
LIMIT: Final = "aiio.limit"
LIMIT_BUDGET: Final = "aiio.limit.budget_ms"
SILENCE: Final = "aiio.silence_ms"
QUEUED: Final = "aiio.queued_ms"
"""Time before the span began, in the queue for a slot."""
ATTEMPTS: Final = "aiio.attempts"
EMITTED: Final = "aiio.emitted"
RETRYABLE: Final = "aiio.retryable"
RETRY_AFTER: Final = "aiio.retry_after_ms"
ROUNDS: Final = "aiio.agent.rounds"

# --- values of `error.type` ---
TIMEOUT: Final = "timeout"
CANCELLED: Final = "cancelled"

# --- metrics ---
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
TOKEN_TYPES: Final = {"input_tokens": "input", "output_tokens": "output"}
SECONDS_BUCKETS: Final = tuple(0.01 * 2**power for power in range(14))
TOKEN_BUCKETS: Final = tuple(float(4**power) for power in range(14))

PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Endpoints whose provider the conventions call otherwise; any other goes by its own name."""
