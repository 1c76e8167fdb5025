#!/usr/bin/env python3
"""Writes the fuzz targets' seeds: seeds.py FOLDER makes FOLDER/TARGET/* for each. Small inputs that get far."""
import json
import pathlib
import struct
import sys

root = pathlib.Path(__file__).resolve().parents[2]
out = pathlib.Path(sys.argv[1])


def write(target, seeds):
    (out / target).mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (out / target / ("seed-%02d" % number)).write_bytes(seed)


# ---- block_format: what is to be put right, then a frame ----
frames = [path.read_bytes() for path in sorted((root / "tests/testdata").glob("block_v1*.frame"))]
write("block_format_fuzz", [bytes([right]) + frame for right in (0, 3) for frame in frames])

# ---- snapshot: layout, what is done, changes to a payload ----
write("snapshot_fuzz", [bytes([layout, 1, 0, 0, 0]) for layout in range(9)])


# ---- gguf: metadata of small models, and every type of value ----
def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


FORMATS = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"),
           "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d")}


def value(kind, content):
    if kind == "text":
        return struct.pack("<I", 8) + text(content)
    if kind == "texts":
        return struct.pack("<IIQ", 9, 8, len(content)) + b"".join(map(text, content))
    if isinstance(content, list):
        number, form = FORMATS[kind]
        return struct.pack("<IIQ", 9, number, len(content)) + b"".join(struct.pack(form, each) for each in content)
    number, form = FORMATS[kind]
    return struct.pack("<I", number) + struct.pack(form, content)


def gguf(architecture, more):
    keys = {"general.architecture": ("text", architecture), "general.name": ("text", "seed"),
            **{"%s.%s" % (architecture, key): each for key, each in more.items()},
            "tokenizer.ggml.tokens": ("texts", ["a", "b", "<s>", ""]), "tokenizer.ggml.scores": ("f32", [0.0] * 4),
            "tokenizer.ggml.token_type": ("i32", [1] * 4), "tokenizer.chat_template": ("text", "{{x}}")}
    tensors, offset = b"", 0
    for name, type_, size in (("token_embd.weight", 0, 128), ("blk.0.attn_k.weight", 8, 136), ("output.weight", 1, 64)):
        tensors += text(name) + struct.pack("<IQIQ", 1, {0: 32, 8: 128, 1: 32}[type_], type_, offset)
        offset += -(-size // 32) * 32
    data = b"GGUF" + struct.pack("<IQQ", 3, 3, len(keys))
    data += b"".join(text(key) + value(*each) for key, each in keys.items()) + tensors
    return data + b"\0" * (len(data) % 2)  # an even length: the target makes the file longer


base = {"block_count": ("u32", 2), "context_length": ("u32", 512), "embedding_length": ("u32", 32),
        "feed_forward_length": ("u32", 64), "attention.head_count": ("u32", 4), "attention.head_count_kv": ("u32", 2),
        "rope.dimension_count": ("u32", 8)}
write("gguf_fuzz", [
    gguf("llama", base),
    gguf("gemma3", {**base, "attention.sliding_window": ("u32", 64), "attention.sliding_window_pattern": ("bool", [True, False])}),
    gguf("lfm2", {**base, "attention.head_count_kv": ("i32", [0, 2]), "shortconv.l_cache": ("u32", 3)}),
    gguf("mamba", {**base, "ssm.conv_kernel": ("u32", 4), "ssm.inner_size": ("u32", 64), "ssm.state_size": ("u64", 16)}),
    gguf("qwen3next", {**base, "full_attention_interval": ("u16", 2), "ssm.group_count": ("u8", 2), "expert_count": ("u32", 8),
                       "expert_used_count": ("u32", 2), "expert_feed_forward_length": ("u32", 16)}),
    gguf("deepseek2", {**base, "attention.key_length_mla": ("u32", 8), "attention.value_length_mla": ("u32", 8),
                       "rope.scaling.type": ("text", "yarn"), "nextn_predict_layers": ("u32", 1)}),
    gguf("bert", {**base, "attention.causal": ("bool", False), "x": ("f64", 1.5), "y": ("i64", -1), "z": ("i8", -1)}),
])

# ---- openai_parse: bodies ----
tool = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{1,3}$"}, "b": {"enum": [1, "x", None]}},
        "required": ["a"], "additionalProperties": False}
write("openai_parse_fuzz", [json.dumps(body).encode() for body in (
    {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True,
     "stream_options": {"include_usage": True}},
    {"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": None}],
     "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": tool}}, "seed": 1, "n": 2},
    {"prompt": [[1, 2, 3]], "logprobs": 3, "stop": ["a", "b"], "temperature": 0.5, "logit_bias": {"5": -100}},
    {"prompt": "once", "grammar": "root ::= \"a\"", "cache_prompt": False, "user": "u"},
    {"input": ["a", "b"], "encoding_format": "base64"},
)])
