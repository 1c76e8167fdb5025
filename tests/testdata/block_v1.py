#!/usr/bin/env python3
"""Writes the golden frames of docs/block_format.md beside itself, and prints the golden ids of src/kv/block_test.cpp.

An implementation of the format of its own, from its description and in the standard library alone: what it shares with
the C++ code is the byte table. Run it only when the format gets a new version.
"""
import hashlib
import pathlib
import struct

MASK = (1 << 64) - 1
PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
SECRET = bytes.fromhex(  # XXH3's default
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def xxh3_128(data):
    """XXH3-128 of more than 240 bytes, canonical."""
    assert len(data) > 240

    def word(bytes_, at):
        return int.from_bytes(bytes_[at:at + 8], "little")

    def accumulate(stripe, secret_at):
        for i in range(8):
            value = word(data, stripe + 8 * i)
            key = value ^ word(SECRET, secret_at + 8 * i)
            lanes[i ^ 1] = (lanes[i ^ 1] + value) & MASK
            lanes[i] = (lanes[i] + (key & 0xFFFFFFFF) * (key >> 32)) & MASK

    def merge(secret_at, start):
        total = start
        for i in range(0, 8, 2):
            product = (lanes[i] ^ word(SECRET, secret_at + 8 * i)) * (lanes[i + 1] ^ word(SECRET, secret_at + 8 * i + 8))
            total += (product & MASK) ^ (product >> 64)
        total &= MASK
        total ^= total >> 37
        total = total * 0x165667919E3779F9 & MASK
        return total ^ total >> 32

    lanes = [PRIME32[2], *PRIME64[:4], PRIME32[1], PRIME64[4], PRIME32[0]]
    for stripe in range((len(data) - 1) // 64):
        accumulate(64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15:  # a block of 1024 bytes is done
            for i in range(8):
                mixed = lanes[i] ^ lanes[i] >> 47 ^ word(SECRET, 128 + 8 * i)
                lanes[i] = mixed * PRIME32[0] & MASK
    accumulate(len(data) - 64, 121)
    low = merge(11, len(data) * PRIME64[0] & MASK)
    high = merge(117, ~(len(data) * PRIME64[1]) & MASK)
    return high.to_bytes(8, "big") + low.to_bytes(8, "big")


def field_hash(domain, *fields):
    """SHA-256 over fields, each behind its length."""
    digest = hashlib.sha256()
    for field in (domain, *fields):
        data = struct.pack("<I", field) if isinstance(field, int) else field.encode() if isinstance(field, str) else field
        digest.update(struct.pack("<Q", len(data)) + data)
    return digest.digest()


def namespace_id(model, adapters, type_k, type_v, rope, flash_attention, v_transposed, block_tokens, version, tenant):
    return field_hash("caravan.namespace.1", model, len(adapters), *adapters, type_k, type_v, rope,
                      flash_attention, v_transposed, block_tokens, version, tenant)


def block_id(parent, tokens):
    return field_hash("caravan.block.1", parent, struct.pack("<%di" % len(tokens), *tokens))


def state_id(block):
    return field_hash("caravan.state.1", block)


def frame(namespace, parent, id_, tokens, payload, raw_bytes, codec, flags):
    header_bytes = -(-(152 + 4 * len(tokens)) // 64) * 64
    head = struct.pack("<4sHHIIIIQQ32s32s32s", b"CVB1", 1, codec, flags, header_bytes, len(tokens), 0, raw_bytes,
                       len(payload), namespace, parent, id_)
    tail = struct.pack("<%di" % len(tokens), *tokens).ljust(header_bytes - 152, b"\0") + payload
    return head + xxh3_128(head + tail) + tail


def rle_zstd(byte, count):
    """zstd's frame of one byte many times: magic, descriptor (single segment), content size, one block of type RLE."""
    assert count < 256
    return struct.pack("<IBB", 0xFD2FB528, 0x20, count) + (1 | 1 << 1 | count << 3).to_bytes(3, "little") + bytes([byte])


namespace = namespace_id("a" * 64, [], "f16", "f16", "", True, False, 64, 1, "")
ids = [namespace]
for begin in (0, 64, 128):
    ids.append(block_id(ids[-1], range(begin, begin + 64)))
state = state_id(ids[3])
other = namespace_id("b" * 64, ["x:1", "y:0.5"], "q8_0", "q4_0", "base=10000", False, True, 32, 3, "acme")
payload = bytes(7 * i % 256 for i in range(1000))
here = pathlib.Path(__file__).parent
(here / "block_v1.frame").write_bytes(frame(namespace, ids[1], ids[2], range(64, 128), payload, 1000, 0, 0))
(here / "block_v1_zstd.frame").write_bytes(
    frame(namespace, ids[2], state, range(128, 192), rle_zstd(42, 200), 200, 1, 1))
for name, id_ in (("namespace", namespace), ("block 0", ids[1]), ("block 1", ids[2]), ("block 2", ids[3]),
                  ("state after block 2", state),
                  ("another namespace", other), ("another block", block_id(other, [-1, 0, 2**31 - 1]))):
    print(name.ljust(20), id_.hex())
