"""Named data sets behind one small interface: uint8 tensors, batches and augmentation on the device."""

from attention_cem.data.augment import Augment
from attention_cem.data.batches import Batch, Batches
from attention_cem.data.cifar import with_coarse_labels
from attention_cem.data.cosine_waves import mse_by_waves, wave_bands
from attention_cem.data.folders import image_folder
from attention_cem.data.gaussian_mixture import (
    EntropyEstimate,
    GaussianMixtureFeatures,
    gaussian_mixture_features,
)
from attention_cem.data.image_quality import mse_per_image, psnr_per_image, ssim_per_image
from attention_cem.data.image_set import ImageData, ImageSet
from attention_cem.data.loading import DataRecord, describe_data, load_data
from attention_cem.data.locate import ROOT_VARIABLE, MissingDataError, data_root
from attention_cem.data.orl import load_orl_folder
from attention_cem.data.packed import load_packed
from attention_cem.data.pixels import Normalise, to_float, to_uint8
from attention_cem.data.registry import DataSource, known_data, lookup_data, register_data
from attention_cem.data.stratified import split_validation
from attention_cem.data.synthetic import synthetic_images

__all__ = [
    "ROOT_VARIABLE",
    "Augment",
    "Batch",
    "Batches",
    "DataRecord",
    "DataSource",
    "EntropyEstimate",
    "GaussianMixtureFeatures",
    "ImageData",
    "ImageSet",
    "MissingDataError",
    "Normalise",
    "data_root",
    "describe_data",
    "gaussian_mixture_features",
    "image_folder",
    "known_data",
    "load_data",
    "load_orl_folder",
    "load_packed",
    "lookup_data",
    "mse_by_waves",
    "mse_per_image",
    "psnr_per_image",
    "register_data",
    "split_validation",
    "ssim_per_image",
    "synthetic_images",
    "to_float",
    "to_uint8",
    "wave_bands",
    "with_coarse_labels",
]
