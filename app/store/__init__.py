"""Storage of verified, content-addressed checkpoints and shards of experience, and of leagues in files."""

from flyball.app.store.blobs import BlobStore, DamagedBlob, FileStore, MemoryStore, MissingBlob, StoredBlob
from flyball.app.store.checkpoints import (
    NETWORK,
    Canary,
    Checkpoint,
    LoraManifest,
    Manifest,
    export_checkpoint,
    get_checkpoint,
    put_checkpoint,
    read_model,
)
from flyball.app.store.experience import experience_lines, load_experience, steps_left_out
from flyball.app.store.leagues import ForeignLeague, LeagueFile
from flyball.app.store.opening import open_store, scratch_folder
from flyball.app.store.shard import SHARDS, Shard, ShardMeta, game_seed, get_shard, note_of, put_shard, with_note

__all__ = [
    "NETWORK",
    "SHARDS",
    "BlobStore",
    "Canary",
    "Checkpoint",
    "DamagedBlob",
    "FileStore",
    "ForeignLeague",
    "LeagueFile",
    "LoraManifest",
    "Manifest",
    "MemoryStore",
    "MissingBlob",
    "Shard",
    "ShardMeta",
    "StoredBlob",
    "experience_lines",
    "export_checkpoint",
    "game_seed",
    "get_checkpoint",
    "get_shard",
    "load_experience",
    "note_of",
    "open_store",
    "put_checkpoint",
    "put_shard",
    "read_model",
    "scratch_folder",
    "steps_left_out",
    "with_note",
]
