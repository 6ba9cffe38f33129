"""Frames: the unit in which events travel, are recorded and handed out. Bodies stay bytes until an edge reads them."""

from app.events.frames.frame import DamagedFrame, Draft, Frame, FrameBuilder, hash_id, peek, without
from app.events.frames.reading import Stored, draft_of, frame_of, read_events, refuse, stored_in
from app.events.frames.record import DamagedRecord, DeadLetter, Record, ids_of, seal

__all__ = [
    "DamagedFrame",
    "DamagedRecord",
    "DeadLetter",
    "Draft",
    "Frame",
    "FrameBuilder",
    "Record",
    "Stored",
    "draft_of",
    "frame_of",
    "hash_id",
    "ids_of",
    "peek",
    "read_events",
    "refuse",
    "seal",
    "stored_in",
    "without",
]
