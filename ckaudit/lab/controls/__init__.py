"""Healthy trainings that look ill, one file for each part of a training that they change."""
