import io

import pytest

from attention_cem.training import RunStart


def test_bar_observer__moves_with_the_steps_and_prints_each_epoch() -> None:
    pytest.importorskip("rich")
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    from attention_cem.cli.progress_bar import BarObserver

    output = io.StringIO()
    progress = Progress(TextColumn("{task.completed}"), console=Console(file=output, width=200))
    observer = BarObserver(progress)
    observer.step(1, 1)
    observer.started(
        RunStart("runs/x", 3, 4, 16, first_epoch=2, first_step=1, device="cpu", train_images=64, validation_images=16)
    )
    with progress:
        observer.step(2, 2)
        observer.epoch_done({"epoch": 2, "accuracy": 0.5, "loss": 1.0, "images_per_s": 9.0, "surrogate_mode": "off"})
        observer.message("[CEM-GATE] closed")
        observer.note("cross_fit is on")
    assert progress.tasks[0].completed == 6 and progress.tasks[0].total == 12
    text = output.getvalue()
    assert "continues in epoch 2 after step 1" in text and "accuracy 50.00%" in text
    assert "warning: [CEM-GATE] closed" in text and "note: cross_fit is on" in text
