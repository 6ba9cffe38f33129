"""Workers: the daemons' reducers that want jobs run."""

from app.runtime.work.distribution import Distributor
from app.runtime.work.evaluation import Evaluator
from app.runtime.work.quality import QualityMonitor
from app.runtime.work.selfplay import SelfplayWorker
from app.runtime.work.training import Trainer
from app.runtime.work.worker import Job, Json, Place, QuietWorker, Worker

__all__ = [
    "Distributor",
    "Evaluator",
    "Job",
    "Json",
    "Place",
    "QualityMonitor",
    "QuietWorker",
    "SelfplayWorker",
    "Trainer",
    "Worker",
]
