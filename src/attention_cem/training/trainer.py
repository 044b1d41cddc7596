"""The training loop of a run: epochs, schedules, validation, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from attention_cem.data import Batches, ImageData
from attention_cem.splitting import SplitModel
from attention_cem.surrogates.followed_solution import RENEW_BESIDE_EVERY
from attention_cem.surrogates.repetition import is_due
from attention_cem.training.activation import SurrogateMode, first_active_epoch
from attention_cem.training.best_weights import BestWeights
from attention_cem.training.building import (
    build_images,
    build_networks,
    cross_fit_reason,
    scoring_batches,
    state_modules,
    uses_bf16,
    uses_cuda_graph,
)
from attention_cem.training.chance_alarm import ChanceAlarm, patience
from attention_cem.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    drop_old_checkpoints,
    read_checkpoint,
    step_checkpoints,
    step_path,
    write_checkpoint,
)
from attention_cem.training.config import Config
from attention_cem.training.config_reading import config_hash
from attention_cem.training.distributed import World
from attention_cem.training.evaluation import Score, collect_features, score
from attention_cem.training.graphed_step import GraphedStep
from attention_cem.training.interruption import StopRequest, TrainingInterrupted
from attention_cem.training.leakage_monitor import Leakage, LeakageMonitor
from attention_cem.training.nonfinite import NonFiniteMonitor
from attention_cem.training.observer import Observer, RunStart
from attention_cem.training.optimisers import ESTIMATOR, TASK, build_optimiser, set_lr
from attention_cem.training.progress import (
    Best,
    Position,
    StepValues,
    first_counted_epoch,
    mode_at,
    position_facts,
    position_from_facts,
    step_values,
)
from attention_cem.training.randomness import seed_stream
from attention_cem.training.run_folder import RunFolder
from attention_cem.training.run_log import EpochTimes, RunLog, epoch_row
from attention_cem.training.run_state import collect_state, restore_state, without_training_state
from attention_cem.training.step import StepSettings, TrainingStep


class Trainer:
    """Trains one run in its folder, from the start or from its newest checkpoint.

    Args:
        config: checked configuration.
        folder: prepared run folder.
        device: where to train.
        world: the processes that train together.
        data: images to use instead of loading ``config.data``.
        model: halves to train instead of building ``config.model``.
        observer: who watches.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        device: torch.device,
        world: World,
        *,
        data: ImageData | None = None,
        model: SplitModel | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.config, self.folder, self.device, self.world = config, folder, device, world
        self.observer = observer or Observer()
        self.bf16 = uses_bf16(config, device)
        self.given_model = model is not None
        self.images = build_images(config, device, world, data)
        self.num_classes = len(self.images.class_names)
        self.cross_fit = cross_fit_reason(config, self.images.train.image_set.labels)
        self.networks = build_networks(
            config, self.images.image_shape, self.num_classes, device, model, cross_fit=self.cross_fit is not None
        )
        self.model, self.stack, self.surrogate = self.networks.model, self.networks.stack, self.networks.surrogate
        self.monitor = NonFiniteMonitor(config.train.nonfinite_limit)
        self.leakage = LeakageMonitor(
            self.stack, self.images.validation, self.networks.z_shape, self.images.image_shape, world
        )
        estimator = [] if self.surrogate is None else list(self.surrogate.parameters())
        task = [*self.model.parameters(), *self.stack.trainable_parameters()]
        recorded = uses_cuda_graph(config, device, world)
        self.optimiser = build_optimiser(task, estimator, config.train, config.surrogate, recorded=recorded)
        compiled = config.train.compile
        # A last, smaller batch is compiled by itself: with sizes left open, VGG's backward does not compile on a CPU.
        compiled_form = partial(torch.compile, dynamic=False)
        # Recorded, most surrogates gain a few percent by being compiled, and each process waits a minute for it.
        worth_it = self.surrogate is not None and (self.surrogate.compile_when_recorded or not recorded)
        compiles_surrogate = compiled and worth_it
        self.stack.set_mixed_precision(self.bf16)
        if compiled:
            self.stack.compile_penalties()
        # What is recorded or compiled cannot do its rare work by itself.
        self.maintains_surrogate = self.surrogate is not None and (recorded or compiles_surrogate)
        self.maintains_defences = recorded or compiled
        self.step = TrainingStep(
            self.model,
            self.stack,
            self.surrogate,
            self.optimiser,
            StepSettings(
                label_smoothing=config.train.label_smoothing,
                clip_norm=config.train.clip_norm,
                attention_loss_scale=config.surrogate.attention_loss_scale,
                plain_sum=config.surrogate.plain_sum,
                bf16=self.bf16,
            ),
            world=world,
            monitor=self.monitor,
            client=compiled_form(self.model.client) if compiled else None,
            server=compiled_form(self.model.server) if compiled else None,
            estimate=compiled_form(self.surrogate, fullgraph=True) if compiles_surrogate and self.surrogate else None,
        )
        self.run_step = GraphedStep(self.step) if recorded else self.step
        self.modules = state_modules(self.networks, self.monitor)
        self.position, self.best, self.seconds = Position(), Best(), 0.0
        young = self.stack.epochs_until_whole(len(self.images.train))
        self.first_counted = min(config.train.epochs, max(first_counted_epoch(config), young + 1))
        self.best_weights = BestWeights(folder.checkpoints, folder.best)
        self._set: StepValues | None = None

    def resume(self) -> None:
        """Continue from the newest checkpoint of the folder, if there is one."""
        paths = step_checkpoints(self.folder.checkpoints)
        if paths:
            checkpoint = read_checkpoint(paths[-1])
            if checkpoint.facts.get("config_hash") != config_hash(self.config):
                raise CheckpointError(
                    f"{paths[-1]} was written by a run with another configuration; use a new run.folder"
                )
            try:
                standing = position_from_facts(checkpoint.facts)
            except ValueError as error:
                raise CheckpointError(f"{paths[-1]}: {error}; use a new run.folder") from None
            restore_state(checkpoint, self.modules, self.optimiser, self.step.meter)
            self.position, self.best, self.seconds = standing
            if self.best.epoch < self.first_counted <= self.position.epoch < self.config.train.epochs:
                self.best = Best()  # a version that counted other epochs wrote it
        if self.world.is_main:
            self.best_weights.settle(self.best.epoch)

    def run(self, stop: StopRequest) -> None:
        """Train to the last epoch; raises `TrainingInterrupted` after a stop request, with a checkpoint left."""
        seen = len(self.images.validation.image_set.labels.unique())
        chance = ChanceAlarm(seen, patience=patience(len(self.images.train)))
        log = RunLog(self.config, self.folder, self.observer, self.world.is_main, self.position, chance)
        if self.world.is_main:
            self.observer.started(self._facts_at_start())
            self._say_if_never_active()
            self._say_if_whole_late()
            if self.cross_fit is not None:
                self.observer.note(f"cross_fit is on: {self.cross_fit}")
            if (remark := self.leakage.remark()) is not None:
                self.observer.message(remark)
        self.world.share_from_main([*self.model.state_dict().values()])
        started = time.monotonic() - self.seconds
        self._last_write = time.monotonic()
        try:
            while self.position.epoch < self.config.train.epochs:
                self._train_epoch(log, started, stop)
        finally:
            log.close()

    def test(self) -> Score:
        """Score the test images once, with the weights that were best on validation."""
        self.world.wait()  # the main process may still be writing them
        best = read_checkpoint(self.folder.best)
        kept = {name: self.modules[name] for name in ("model", "defences")}
        restore_state(best, kept, None, None)
        on_device = self.config.data.on_device
        batches = scoring_batches(self.images.test, self.device, self.world, on_device=on_device)
        return self._score(batches, "test", 0)

    def _train_epoch(self, log: RunLog, started: float, stop: StopRequest) -> None:
        epoch = self.position.epoch
        needs_fit = self.surrogate is not None and self.surrogate.needs_fit
        mode = mode_at(self.config, epoch, needs_fit=needs_fit)
        times = EpochTimes(self.config.train.batch_size)
        if self.position.batch == 0:
            self._begin_epoch(epoch, fit=needs_fit and mode is not SurrogateMode.OFF)
        numbered = self.surrogate is not None and self.surrogate.uses_sample
        batches = self.images.train.numbered if numbered else self.images.train
        for images, labels, *sample in batches(epoch, self.position.batch):
            self._apply_schedule(mode)
            seed_stream(self.device, "step", self.config.train.seed, epoch, self.position.batch, self.world.rank)
            self.run_step(images, labels, mode, *sample)
            self.position = self.position.after_step()
            times.steps += 1
            if self.world.is_main:
                self.observer.step(epoch + 1, self.position.batch)
            self._maintain()
            self._look_around(stop, started, times)
        means = self.step.meter.means()
        times.stop()
        left_out = self.monitor.check(f"epoch {epoch + 1}")
        validation, leakage = self._validate(epoch)
        # Not what was set: a run continued after the last step of an epoch has set nothing.
        values = step_values(self.config, Position(epoch, len(self.images.train) - 1), len(self.images.train), mode)
        row = epoch_row(epoch + 1, means, validation, leakage, values, mode, times, left_out)
        log.epoch(row, mode, self.step.last_vectors, self.surrogate)
        self._finish_epoch(epoch, validation, started)

    def _begin_epoch(self, epoch: int, *, fit: bool) -> None:
        self.step.meter.reset()
        self.stack.begin_epoch(epoch, self.model.client, self.optimiser)
        if fit and self.surrogate is not None:
            seed_stream(self.device, "fit", self.config.train.seed, epoch)
            features, labels = collect_features(
                self.model, self.stack, self.images.train, epoch, world=self.world, bf16=self.bf16
            )
            self.surrogate.fit(features, labels)
        if self.surrogate is not None:
            # Sums on CUDA may differ in the last digit from rank to rank; start every epoch from one state.
            self.world.share_from_main([*self.surrogate.state_dict().values()])

    def _apply_schedule(self, mode: SurrogateMode) -> None:
        values = step_values(self.config, self.position, len(self.images.train), mode)
        if values != self._set:
            set_lr(self.optimiser, TASK, values.lr)
            set_lr(self.optimiser, ESTIMATOR, values.estimator_lr)
            self.step.lambd.fill_(values.lambd)
            self._set = values

    def _maintain(self) -> None:
        """The rare work of what is recorded or compiled, at the steps at which it would do it by itself."""
        steps = self.position.steps
        if self.maintains_surrogate and self.surrogate is not None and is_due(steps, self.surrogate.maintain_every):
            self.surrogate.maintain()
        if self.maintains_defences and is_due(steps, RENEW_BESIDE_EVERY):
            self.stack.maintain()

    def _look_around(self, stop: StopRequest, started: float, times: EpochTimes) -> None:
        """Between two steps: stop requests, trouble, the clock."""
        regular = self.position.batch % self.config.train.check_steps == 0
        if regular:
            self.monitor.check(f"epoch {self.position.epoch + 1}, step {self.position.batch}")
        # Ranks must agree before one of them leaves; a single process may look at every step.
        asked = stop.asked if self.world.size == 1 else regular and self.world.any(stop.asked, self.device)
        due = time.monotonic() - self._last_write >= self.config.run.checkpoint_seconds
        if asked or due:
            self.monitor.check(f"epoch {self.position.epoch + 1}")  # waits for the device
            with times.pause():
                self._write_checkpoint(started)
        if asked:
            raise TrainingInterrupted(str(self.folder.path))

    def _finish_epoch(self, epoch: int, validation: Score, started: float) -> None:
        self.position = self.position.next_epoch()
        if self.position.epoch == self.first_counted:
            self.best = Best()  # what was best before the surrogate acted in full does not count any more
        if validation.accuracy > self.best.accuracy:
            self.best = Best(validation.accuracy, epoch + 1)
            if self.world.is_main:
                self.best_weights.keep(epoch + 1, without_training_state(self._checkpoint(started)))
        last = self.position.epoch == self.config.train.epochs
        if last or self.position.epoch % self.config.run.checkpoint_epochs == 0:
            self._write_checkpoint(started)

    def _write_checkpoint(self, started: float) -> None:
        if self.world.is_main:
            self.best_weights.write()
            write_checkpoint(step_path(self.folder.checkpoints, self.position.steps), self._checkpoint(started))
            drop_old_checkpoints(self.folder.checkpoints)
            self.best_weights.publish(self.best.epoch)
        self._last_write = time.monotonic()

    def _checkpoint(self, started: float) -> Checkpoint:
        self.seconds = time.monotonic() - started
        facts = position_facts(self.position, self.best, self.seconds) | {
            "config_hash": config_hash(self.config),
            "image_shape": list(self.images.image_shape),
            "class_names": list(self.images.class_names),
            "given_model": self.given_model,
            "cross_fit": self.cross_fit is not None,
        }
        return collect_state(self.modules, self.optimiser, self.step.meter, facts)

    def _validate(self, epoch: int) -> tuple[Score, Leakage]:
        watching = self.leakage.begin()
        if watching is None:
            return self._score(self.images.validation, "validation", epoch), Leakage(None, None)
        validation = self._score(self.images.validation, "validation", epoch, watch=watching.add)
        leakage = watching.finish()
        if leakage.share is None and self.world.is_main:
            self.observer.message(f"epoch {epoch + 1}: leakage_share is not known, z was not finite")
        return validation, leakage

    def _score(
        self,
        batches: Batches,
        purpose: str,
        epoch: int,
        watch: Callable[[Tensor, Tensor, Tensor], None] | None = None,
    ) -> Score:
        seed_stream(self.device, purpose, self.config.train.seed, epoch, self.world.rank)
        classes, world = self.num_classes, self.world
        return score(self.model, self.stack, batches, num_classes=classes, world=world, bf16=self.bf16, watch=watch)

    def _say_if_never_active(self) -> None:
        settings = self.config.surrogate
        first = first_active_epoch(settings.attention_warmup_epochs)
        if settings.name != "none" and settings.lambd > 0 and first > self.config.train.epochs:
            self.observer.message(
                f"the surrogate is never used: it becomes active in epoch {first}, training ends after "
                f"{self.config.train.epochs} (surrogate.attention_warmup_epochs, train.epochs)"
            )

    def _say_if_whole_late(self) -> None:
        epochs, young = self.config.train.epochs, self.stack.epochs_until_whole(len(self.images.train))
        if young > epochs / 2:
            when = f"only after epoch {young} of {epochs}" if young < epochs else f"in none of the {epochs} epochs"
            self.observer.message(
                f"the defences act in full {when}: a weaker defence than it seems; train longer, or let them rise "
                "faster (ramp_steps of linear_leakage, end_epoch of channel_pruning)"
            )

    def _facts_at_start(self) -> RunStart:
        return RunStart(
            folder=str(self.folder.path),
            epochs=self.config.train.epochs,
            steps_per_epoch=len(self.images.train),
            batch_size=self.config.train.batch_size,
            first_epoch=self.position.epoch + 1,
            first_step=self.position.batch,
            device=str(self.device),
            train_images=len(self.images.train.image_set),
            validation_images=len(self.images.validation.image_set),
        )
