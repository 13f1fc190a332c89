"""The checkpoint from which an interrupted run of TRL continues."""

import json
import logging
from contextlib import suppress
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

logger = logging.getLogger(__name__)


def newest_checkpoint(folder: Path) -> str | None:
    """Return the newest complete checkpoint in a folder, if there is one."""
    steps = [path.name.rpartition("-")[2] for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*")]
    for step in sorted((int(step) for step in steps if step.isdecimal()), reverse=True):
        checkpoint = folder / f"{PREFIX_CHECKPOINT_DIR}-{step}"
        with suppress(OSError, ValueError):
            json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))  # written last
            return str(checkpoint)
        logger.warning("%s is incomplete (killed while saving); skipping it", checkpoint)
    return None
